// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <string>
#include <utility>
#include <vector>

#include "catch.h"

using cua::tokenizer::AddedToken;
using cua::tokenizer::AddedTokens;

namespace {

using Found = std::vector<std::pair<size_t, uint32_t>>;  // offset, id

Found find_all(const AddedTokens &tokens, std::string_view text) {
  Found found;
  for (size_t at = 0;;) {
    const AddedToken *token = tokens.find(text, at);
    if (!token) {
      CHECK(at == text.size());
      return found;
    }
    found.emplace_back(at, token->id);
    at += token->content.size();
  }
}

}  // namespace

TEST_CASE("added tokens: the leftmost first, then the longest") {
  const AddedTokens tokens({{"<a>", 1}, {"<a>b", 2}, {"a>b<", 3}, {"<", 4}, {"\xC3\xA9", 5}});
  CHECK(find_all(tokens, "") == Found{});
  CHECK(find_all(tokens, "plain") == Found{});
  CHECK(find_all(tokens, "<a>") == Found{{0, 1}});
  CHECK(find_all(tokens, "<a>b") == Found{{0, 2}});
  CHECK(find_all(tokens, "<a>b<") == Found{{0, 2}, {4, 4}});
  CHECK(find_all(tokens, "xa>b<a>") == Found{{1, 3}});  // what overlaps a match is gone
  CHECK(find_all(tokens, "<<a><") == Found{{0, 4}, {1, 1}, {4, 4}});
  CHECK(find_all(tokens, std::string("\0<\xC3\xA9", 4)) == Found{{1, 4}, {2, 5}});
  CHECK(find_all(AddedTokens({}), "<a>") == Found{});
}
