// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/printable.h"

namespace cua::checkpoint {
namespace {
constexpr size_t kMost = 200;  // bytes
constexpr char kHex[] = "0123456789abcdef";
}  // namespace

std::string printable(std::string_view text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts = (byte & 0xc0) != 0x80;  // a character of UTF-8
    if (starts && line.size() >= kMost) {
      return line + "... (" + std::to_string(text.size()) + " bytes)";
    }
    if (byte < 0x20 || byte == 0x7f) {
      line += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      line += text[i];
    }
  }
  return line;
}

std::string words(const std::vector<uint64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace cua::checkpoint
