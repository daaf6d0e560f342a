// SPDX-License-Identifier: Apache-2.0
//
// The prompt of one question. The system message and the layout come from trycua/cua (MIT,
// Copyright (c) 2025 Cua AI, Inc.; see THIRD_PARTY_NOTICES.md).
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace cua_server::decision {

// What every prompt begins with: the system message, and the user's turn up to its first newline.
std::string_view prompt_prefix();

// goal: empty for none. labels: unescaped, in request order, 1 to 26; they get the letters A to Z.
std::string prompt(std::string_view goal, std::string_view state,
                   std::span<const std::string> labels);

}  // namespace cua_server::decision
