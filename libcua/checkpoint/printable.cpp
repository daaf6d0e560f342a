// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/printable.h"

namespace cua::checkpoint {
namespace {
constexpr size_t kMost = 200;  // bytes
constexpr char kHex[] = "0123456789abcdef";
}  // namespace

std::string printable(std::string_view text) {
  std::string line;
  size_t end = text.size();
  if (end > kMost) {
    end = kMost;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  }
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      line += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      line += c;
    }
  }
  if (end < text.size()) line += "... (" + std::to_string(text.size()) + " bytes)";
  return line;
}

}  // namespace cua::checkpoint
