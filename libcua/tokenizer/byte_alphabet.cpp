// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.h"

#include "tokenizer/utf8.h"

namespace cua::tokenizer {

const std::array<std::string, 256> &byte_alphabet() {
  static const std::array<std::string, 256> alphabet = [] {
    std::array<std::string, 256> spellings;
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      append_utf8(printable ? static_cast<char32_t>(byte) : next++, spellings[byte]);
    }
    return spellings;
  }();
  return alphabet;
}

}  // namespace cua::tokenizer
