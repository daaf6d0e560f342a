// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>

namespace cua::tools {

// Of one row of a weight: to[i] = w[i] + scale * (the sum over ranks r, in their order, of
// b[r] * a[r * stride + i]), i < n. The sum is of fused multiply-adds in fp32; scale and w come in
// one rounding each. The same bits on every processor.
void add_lora_row(const float *w, const float *a, size_t stride, const float *b, size_t rank,
                  float scale, size_t n, float *to);

}  // namespace cua::tools
