// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

#include "model/config.h"

namespace cua::checkpoint {

// The dimensions in a config.json of Transformers, flat or nested under "text_config". Every one is
// checked: present, in range, consistent with the others. `file` names it in errors.
// Throws Error BAD_MODEL (damaged) or UNSUPPORTED (another kind of model).
model::Config parse_config(std::string_view text, const std::string &file);

}  // namespace cua::checkpoint
