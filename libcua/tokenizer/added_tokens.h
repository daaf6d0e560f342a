// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cua::tokenizer {

struct AddedToken {
  std::string content;  // not empty
  uint32_t id;
};

// Finds added tokens in raw text: the leftmost, and of those that start there the longest.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // The first added token at or behind offset; moves offset to its first byte, or to the end of
  // the text and returns nullptr where there is none.
  const AddedToken *find(std::string_view text, size_t &offset) const;

 private:
  std::vector<AddedToken> tokens_;  // by first byte, then longest first
  struct Range {
    uint32_t begin = 0, end = 0;
  };
  std::array<Range, 256> by_first_byte_;
};

}  // namespace cua::tokenizer
