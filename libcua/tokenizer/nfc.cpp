// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <memory>
#include <vector>

#include "error.h"
#include "tokenizer/utf8.h"

namespace cua::tokenizer {
namespace {

constexpr char32_t kCodePoints = 0x110000;

struct Range {
  char32_t first, last;
};

// Unassigned in Unicode 9.0, and since then (looked up to Unicode 18) given a combining class or a
// part in a canonical decomposition. The `tokenizers` package normalises with the tables of 9.0, so
// that these are to it characters without either.
constexpr Range kLaterThanUnicode9[] = {
    {0x005C8, 0x005C9}, {0x007FD, 0x007FD}, {0x00897, 0x0089F}, {0x008CA, 0x008D3},
    {0x009FE, 0x009FE}, {0x00C3C, 0x00C3C}, {0x00D3B, 0x00D3C}, {0x00EBA, 0x00EBA},
    {0x01715, 0x01715}, {0x01ABF, 0x01AFF}, {0x01DF6, 0x01DFA}, {0x0A82C, 0x0A82C},
    {0x105C0, 0x105FF}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC},
    {0x10ECB, 0x10ECF}, {0x10EF0, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11380, 0x113FF}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11900, 0x1195F}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x16100, 0x1613F}, {0x16D40, 0x16D7F}, {0x16FF0, 0x16FF1},
    {0x1D127, 0x1D128}, {0x1D250, 0x1D281}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6F5}};

constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

bool later_than_unicode9(char32_t code_point) {
  return std::any_of(std::begin(kLaterThanUnicode9), std::end(kLaterThanUnicode9),
                     [&](Range r) { return r.first <= code_point && code_point <= r.last; });
}

uint8_t combining_class(utf8proc_int32_t code_point) {
  return static_cast<uint8_t>(utf8proc_get_property(code_point)->combining_class);
}

// Appends the full canonical decomposition of a code point.
void decompose(utf8proc_int32_t code_point, std::vector<utf8proc_int32_t> &out) {
  utf8proc_int32_t buffer[16];
  const auto length =
      utf8proc_decompose_char(code_point, buffer, std::size(buffer), kDecompose, nullptr);
  if (length < 0 || length > static_cast<utf8proc_ssize_t>(std::size(buffer))) {
    throw Error(CUA_INTERNAL, "utf8proc cannot decompose U+" + std::to_string(code_point));
  }
  out.insert(out.end(), buffer, buffer + length);
}

// Puts decomposed characters into canonical order and composes them.
void order_and_compose(std::vector<utf8proc_int32_t> &characters) {
  const auto by_class = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return combining_class(a) < combining_class(b);
  };
  for (auto run = characters.begin(); run != characters.end();) {
    const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
    const auto end = std::find_if(run, characters.end(), is_starter);
    if (!std::is_sorted(run, end, by_class)) std::stable_sort(run, end, by_class);
    run = std::find_if_not(end, characters.end(), is_starter);
  }
  const auto length = utf8proc_normalize_utf32(
      characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), kCompose);
  if (length < 0) throw Error(CUA_INTERNAL, "utf8proc cannot compose");
  characters.resize(static_cast<size_t>(length));
}

// The characters that normalisation may change or join to the one before. All others stay as they
// are and start afresh, so that a text can be normalised from one of them to the next.
class Unstable {
 public:
  Unstable() : bits_(std::make_unique<std::bitset<kCodePoints>>()) {
    std::vector<utf8proc_int32_t> parts;
    std::vector<char32_t> decomposing;
    auto &bits = *bits_;
    for (char32_t c = 0; c < kCodePoints; ++c) {
      if (c >= 0xAC00 && c <= 0xD7FF) continue;  // Hangul syllables; surrogates do not occur
      const auto *property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      if (property->combining_class != 0) bits[c] = true;
      if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) continue;
      parts.clear();
      decompose(static_cast<utf8proc_int32_t>(c), parts);
      decomposing.push_back(c);
      for (size_t i = 1; i < parts.size(); ++i) bits[static_cast<size_t>(parts[i])] = true;
    }
    for (char32_t c = 0x1161; c <= 0x1175; ++c) bits[c] = true;  // Hangul vowels
    for (char32_t c = 0x11A8; c <= 0x11C2; ++c) bits[c] = true;  // and final consonants
    for (const char32_t c : decomposing) {
      parts.clear();
      decompose(static_cast<utf8proc_int32_t>(c), parts);
      order_and_compose(parts);
      if (parts.size() != 1 || parts[0] != static_cast<utf8proc_int32_t>(c)) bits[c] = true;
    }
    for (const Range &range : kLaterThanUnicode9) {
      for (char32_t c = range.first; c <= range.last; ++c) bits[c] = false;
    }
  }

  bool operator[](char32_t code_point) const { return (*bits_)[code_point]; }

 private:
  std::unique_ptr<std::bitset<kCodePoints>> bits_;
};

}  // namespace

std::string_view nfc(std::string_view text, std::string &storage) {
  static const Unstable unstable;
  storage.clear();
  size_t copied = 0;  // text before this is in storage, normalised
  size_t start = 0;   // of the last stable character
  std::vector<utf8proc_int32_t> characters;
  for (size_t at = 0; at < text.size();) {
    // Everything below U+0300, whose first byte is CC, is stable.
    if (static_cast<uint8_t>(text[at]) < 0xCC) {
      start = at;
      at += static_cast<uint8_t>(text[at]) < 0x80 ? 1 : 2;
      continue;
    }
    size_t next = at;
    if (!unstable[decode_utf8(text, next)]) {
      start = at;
      at = next;
      continue;
    }
    // A chunk from the stable character before, unless it joins with nothing, to the next one.
    characters.clear();
    if (start < at) {
      size_t i = start;
      const char32_t code_point = decode_utf8(text, i);
      if (later_than_unicode9(code_point)) {
        start = at;
      } else {
        decompose(static_cast<utf8proc_int32_t>(code_point), characters);
      }
    }
    for (; at < text.size(); at = next) {
      next = at;
      const char32_t code_point = decode_utf8(text, next);
      if (!unstable[code_point]) break;
      decompose(static_cast<utf8proc_int32_t>(code_point), characters);
    }
    order_and_compose(characters);
    storage += text.substr(copied, start - copied);
    for (const auto c : characters) append_utf8(static_cast<char32_t>(c), storage);
    copied = start = at;
  }
  if (copied == 0) return text;
  storage += text.substr(copied);
  return storage;
}

}  // namespace cua::tokenizer
