// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cua::checkpoint {

// UTF-8 text out of a file, as an error message can hold it: on one line, with no NUL that would
// end a C string, and not so long that it pushes out what the message says about it.
std::string printable(std::string_view text);

// A shape, as in "[64, 128]".
std::string words(const std::vector<uint64_t> &shape);

}  // namespace cua::checkpoint
