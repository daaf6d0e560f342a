// SPDX-License-Identifier: Apache-2.0
// Tensor-core products of a whole warpgroup (four warps), on Hopper alone: the right operand, and
// where wanted the left, are read from shared memory by the tensor cores themselves. Accumulators
// lie as in mma.cuh, warp w having rows 16 w to 16 w + 15. Operands are panels: rows of 64 bf16
// (128 bytes), whose 16-byte pieces p of row r stand at p ^ (r % 8); 1024-byte aligned.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace cua::backend::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CUA_WGMMA 1

// Of a panel from `from` on: 128-byte swizzle, 1024 bytes from one group of eight rows to the next.
__device__ inline uint64_t panel_descriptor(const __nv_bfloat16 *from) {
  const uint64_t at = static_cast<uint32_t>(__cvta_generic_to_shared(from));
  return (at & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// Before the first product, and after the registers of one were touched.
__device__ inline void warpgroup_arrive() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ inline void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
__device__ inline void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}
// Makes what this thread wrote to shared memory, cp.async included, visible to the tensor cores;
// a barrier of the block follows.
__device__ inline void show_to_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

#define CUA_FOUR(c, i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define CUA_THIRTY_TWO(c)                                                                         \
  CUA_FOUR(c, 0), CUA_FOUR(c, 1), CUA_FOUR(c, 2), CUA_FOUR(c, 3), CUA_FOUR(c, 4), CUA_FOUR(c, 5), \
      CUA_FOUR(c, 6), CUA_FOUR(c, 7)
#define CUA_THIRTY_TWO_NAMES                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// c[64, 64] += a[64, 16] b[64, 16]^T: rows of both are rows of their panels.
__device__ inline void warpgroup_multiply(float (*c)[4], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " CUA_THIRTY_TWO_NAMES
               ", %32, %33, 1, 1, 1, 0, 0;\n"
               : CUA_THIRTY_TWO(c)
               : "l"(a), "l"(b));
}

// c[64, 64] += a[64, 16] b[16, 64]: a in registers as for mma.cuh, rows of b are rows of its panel.
__device__ inline void warpgroup_multiply(float (*c)[4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " CUA_THIRTY_TWO_NAMES
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
               : CUA_THIRTY_TWO(c)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif

}  // namespace cua::backend::cuda
