/* SPDX-License-Identifier: Apache-2.0 */
#include "cua.h"
/* alone, and first */
#define CUA_LAYOUT(name, condition) _Static_assert(condition, #name);
#include "layout.h"
