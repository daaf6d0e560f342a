// SPDX-License-Identifier: Apache-2.0
// Compiled with -ffp-contract=off: only what says fma is one.
#include "tools/lora_rows.h"

#include <algorithm>
#include <cmath>

namespace cua::tools {
namespace {

constexpr size_t kBlock = 1024;  // columns that stay in registers' reach

inline __attribute__((always_inline)) void add_row(const float *w, const float *a, size_t stride,
                                                   const float *b, size_t rank, float scale,
                                                   size_t n, float *to) {
  float sum[kBlock];
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t count = std::min(kBlock, n - first);
    for (size_t i = 0; i < count; ++i) sum[i] = 0;
    for (size_t r = 0; r < rank; ++r) {
      const float *const row = a + r * stride + first;
      const float factor = b[r];
      for (size_t i = 0; i < count; ++i) sum[i] = __builtin_fmaf(factor, row[i], sum[i]);
    }
    for (size_t i = 0; i < count; ++i) to[first + i] = w[first + i] + sum[i] * scale;
  }
}

using AddRow = decltype(&add_lora_row);

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void add_row_avx2(const float *w, const float *a, size_t stride,
                                                      const float *b, size_t rank, float scale,
                                                      size_t n, float *to) {
  add_row(w, a, stride, b, rank, scale, n, to);
}
#endif

// Where the processor has no such instruction, the C library's fmaf rounds the same way, slowly.
void add_row_anywhere(const float *w, const float *a, size_t stride, const float *b, size_t rank,
                      float scale, size_t n, float *to) {
  add_row(w, a, stride, b, rank, scale, n, to);
}

AddRow choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return add_row_avx2;
#endif
  return add_row_anywhere;
}

}  // namespace

void add_lora_row(const float *w, const float *a, size_t stride, const float *b, size_t rank,
                  float scale, size_t n, float *to) {
  static const AddRow chosen = choose();
  chosen(w, a, stride, b, rank, scale, n, to);
}

}  // namespace cua::tools
