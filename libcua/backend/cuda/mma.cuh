// SPDX-License-Identifier: Apache-2.0
// Tensor-core products of 16 x 16 by 16 x 8 bf16 tiles, and how their operands leave shared memory.
// Accumulators: c[0], c[1] are row lane / 4, columns lane % 4 * 2 and the next; c[2], c[3] eight
// rows below.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace cua::backend::cuda {

__device__ inline void load_matrix(uint32_t (&to)[4], const __nv_bfloat16 *from) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at));
}

__device__ inline void load_matrix_transposed(uint32_t (&to)[4], const __nv_bfloat16 *from) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at));
}

// c[16, 8] += a[16, 16] b[16, 8]
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t *>(&two);
}

// Operands from a row-major tile of row stride kStride: an odd multiple of 8, so that the eight
// rows of a matrix lie in different banks.
template <int kStride>
struct Operand {
  static_assert(kStride % 16 == 8);
  // a[16, 16] at (row, col)
  __device__ static void a(uint32_t (&to)[4], const __nv_bfloat16 *tile, int row, int col) {
    const int lane = threadIdx.x % 32;
    load_matrix(to, tile + (row + lane % 16) * kStride + col + lane / 16 * 8);
  }
  // a[16, 16] whose transpose is stored: a[m][k] = tile[k][m]
  __device__ static void a_transposed(uint32_t (&to)[4], const __nv_bfloat16 *tile, int m, int k) {
    const int lane = threadIdx.x % 32;
    load_matrix_transposed(to,
                           tile + (k + lane / 16 * 8 + lane % 8) * kStride + m + lane / 8 % 2 * 8);
  }
  // b[16, 16] at (k, n), stored as b[k][n]: columns n to n + 7 are to[0], to[1], the others the
  // rest
  __device__ static void b(uint32_t (&to)[4], const __nv_bfloat16 *tile, int k, int n) {
    const int lane = threadIdx.x % 32;
    load_matrix_transposed(to, tile + (k + lane % 16) * kStride + n + lane / 16 * 8);
  }
  // the same, stored as its transpose: b[k][n] = tile[n][k]
  __device__ static void b_transposed(uint32_t (&to)[4], const __nv_bfloat16 *tile, int k, int n) {
    const int lane = threadIdx.x % 32;
    load_matrix(to, tile + (n + lane / 16 * 8 + lane % 8) * kStride + k + lane / 8 % 2 * 8);
  }
};

}  // namespace cua::backend::cuda
