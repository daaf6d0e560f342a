// SPDX-License-Identifier: Apache-2.0
// tokenize_strings TOKENIZER_JSON: reads strings from stdin, each behind its length in bytes, and
// writes the ids of each behind their number; all numbers are 32-bit, little-endian.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenize_strings TOKENIZER_JSON <strings >ids\n");
    return 2;
  }
  try {
    const cua::tokenizer::Tokenizer tokenizer{argv[1]};
    uint32_t length;
    std::string text;
    while (std::fread(&length, sizeof length, 1, stdin) == 1) {
      text.resize(length);
      if (std::fread(text.data(), 1, length, stdin) != length) {
        std::fprintf(stderr, "tokenize_strings: the input ends inside a string\n");
        return 1;
      }
      const std::vector<uint32_t> ids = tokenizer.encode(text);
      const auto count = static_cast<uint32_t>(ids.size());
      std::fwrite(&count, sizeof count, 1, stdout);
      if (count != 0) std::fwrite(ids.data(), sizeof(uint32_t), count, stdout);
    }
  } catch (const std::exception &error) {
    std::fprintf(stderr, "tokenize_strings: %s\n", error.what());
    return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
