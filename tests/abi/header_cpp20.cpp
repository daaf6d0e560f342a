// SPDX-License-Identifier: Apache-2.0
#include "cua.h"
// alone, and first
#include <type_traits>
#define CUA_LAYOUT(name, condition) static_assert(condition, #name);
#include "layout.h"

static_assert(std::is_standard_layout_v<cua_engine_options> &&
              std::is_trivially_copyable_v<cua_engine_options>);
// C++ would resolve another parameter list as another function.
static_assert(
    std::is_same_v<decltype(&cua_score_prompts), int32_t (*)(cua_engine *, const cua_prompt *,
                                                             uint32_t, cua_score *, cua_error *)>);
