/* SPDX-License-Identifier: Apache-2.0 */
#include "cua.h"
/* alone, and first */
#define CUA_LAYOUT(name, condition) typedef char cua_layout_##name[(condition) ? 1 : -1];
#include "layout.h"
