// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace cua::tokenizer {
namespace {

uint8_t first_byte(const AddedToken &token) { return static_cast<uint8_t>(token.content.front()); }

// A loop, since nearly every comparison ends at the second byte.
bool starts_with(std::string_view text, std::string_view start) {
  if (text.size() < start.size()) return false;
  for (size_t i = 0; i < start.size(); ++i) {
    if (text[i] != start[i]) return false;
  }
  return true;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken &a, const AddedToken &b) {
    if (first_byte(a) != first_byte(b)) return first_byte(a) < first_byte(b);
    return a.content.size() > b.content.size();
  });
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    Range &range = by_first_byte_[first_byte(tokens_[i])];
    if (range.begin == range.end) range.begin = i;
    range.end = i + 1;
  }
}

const AddedToken *AddedTokens::find(std::string_view text, size_t &offset) const {
  for (; offset < text.size(); ++offset) {
    const Range range = by_first_byte_[static_cast<uint8_t>(text[offset])];
    for (uint32_t i = range.begin; i < range.end; ++i) {
      if (starts_with(text.substr(offset), tokens_[i].content)) return &tokens_[i];
    }
  }
  return nullptr;
}

}  // namespace cua::tokenizer
