// SPDX-License-Identifier: Apache-2.0
// 16-byte accesses to rows of bf16, and sums over a warp or block in a fixed order.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace cua::backend::cuda {

using bf16 = __nv_bfloat16;

constexpr int kVector = 8;  // bf16 in 16 bytes

struct alignas(16) Bf16x8 {
  __nv_bfloat162 pair[4];
};

__device__ inline void load8(const bf16 *from, float (&to)[8]) {
  const Bf16x8 raw = *reinterpret_cast<const Bf16x8 *>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __bfloat1622float2(raw.pair[i]);
    to[2 * i] = two.x;
    to[2 * i + 1] = two.y;
  }
}

__device__ inline void store8(bf16 *to, const float (&from)[8]) {
  Bf16x8 raw;
#pragma unroll
  for (int i = 0; i < 4; ++i) raw.pair[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
  *reinterpret_cast<Bf16x8 *>(to) = raw;
}

__device__ inline void load_floats(const float *from, float (&to)[8]) {
  const float4 a = *reinterpret_cast<const float4 *>(from);
  const float4 b = *reinterpret_cast<const float4 *>(from + 4);
  to[0] = a.x;
  to[1] = a.y;
  to[2] = a.z;
  to[3] = a.w;
  to[4] = b.x;
  to[5] = b.y;
  to[6] = b.z;
  to[7] = b.w;
}

__device__ inline float round_bf16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

__device__ inline float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// 16 bytes from global to shared memory, part of the thread's next commit group.
__device__ inline void copy_async(void *to, const void *from) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(at), "l"(from) : "memory");
}
// The same; zeros, and `from` is not read, where not `present`.
__device__ inline void copy_async(void *to, const void *from, bool present) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from),
               "r"(present ? 16 : 0)
               : "memory");
}
__device__ inline void commit_async() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Until at most kPending of the thread's commit groups are under way.
template <int kPending>
__device__ inline void wait_async() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// The same sum in every lane.
template <int kLanes = 32>
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  }
  return x;
}

// The same sum in every thread; blockDim.x is a multiple of 32, at most 1024.
__device__ inline float block_sum(float x) {
  __shared__ float partial[32];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) partial[warp] = x;
  __syncthreads();
  x = 0;
  for (int i = 0; i < warps; ++i) x += partial[i];
  return x;
}

}  // namespace cua::backend::cuda
