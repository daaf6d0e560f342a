// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace cua::api {

// Offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7).
std::optional<size_t> invalid_utf8(std::string_view text);

// Length of the longest prefix of at most `most` bytes that does not end inside a character.
size_t cut(std::string_view text, size_t most) noexcept;

}  // namespace cua::api
