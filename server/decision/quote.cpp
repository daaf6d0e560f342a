// SPDX-License-Identifier: Apache-2.0
#include "decision/quote.h"

#include <cstddef>

#include "decision/python_json.h"

namespace cua_server::decision {

std::string cut_short(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool begins_character = (byte & 0xc0) != 0x80;
    if (begins_character && out.size() >= kMost) return out + "...";
    if (byte < 0x20) {
      append_escaped(out, {&c, 1});
    } else {
      out += c;
    }
  }
  return out;
}

std::string quote_short(std::string_view text) { return '"' + cut_short(text) + '"'; }

std::string make_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = at(i);
    size_t more = 0;                        // continuation bytes
    unsigned char low = 0x80, high = 0xbf;  // bounds of the first of them
    bool good = true;
    if (lead >= 0xc2 && lead <= 0xdf) {
      more = 1;
    } else if (lead >= 0xe0 && lead <= 0xef) {
      more = 2;
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      more = 3;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    } else {
      good = lead < 0x80;
    }
    good = good && text.size() - i > more;
    for (size_t j = 1; good && j <= more; ++j) {
      good = at(i + j) >= low && at(i + j) <= high;
      low = 0x80;
      high = 0xbf;
    }
    if (good) {
      out.append(text.substr(i, more + 1));
      i += more + 1;
    } else {
      out += "\xef\xbf\xbd";
      ++i;
    }
  }
  return out;
}

}  // namespace cua_server::decision
