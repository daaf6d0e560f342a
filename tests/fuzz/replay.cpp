// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target once on each file of the folders named, where there is no libFuzzer.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
  size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto &entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
      // A copy of the exact size, so that AddressSanitizer sees a read past its end.
      const std::vector<uint8_t> input(bytes.begin(), bytes.end());
      std::printf("%s\n", entry.path().c_str());
      std::fflush(stdout);
      LLVMFuzzerTestOneInput(input.data(), input.size());
      ++files;
    }
  }
  if (files == 0) std::fprintf(stderr, "no corpus\n");
  return files == 0 ? 1 : 0;
}
