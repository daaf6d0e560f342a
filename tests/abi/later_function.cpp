// SPDX-License-Identifier: Apache-2.0
// The function that the later header adds.
#include "cua.h"

extern "C" CUA_API int32_t cua_later_function(cua_engine *, cua_error *) { return CUA_OK; }
