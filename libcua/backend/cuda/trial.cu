// SPDX-License-Identifier: Apache-2.0
// Random operands for trials of matrix products, and the comparison of what comes out.
#include "backend/cuda/kernels.h"

namespace cua::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kMostBlocks = 2048;

__global__ void fill_random_kernel(bf16 *values, uint64_t n, uint32_t seed) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    uint32_t h = static_cast<uint32_t>(i) * 0x9e3779b9u + seed * 0x85ebca6bu;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    h ^= h >> 16;
    values[i] = __float2bfloat16_rn(static_cast<float>(h >> 8) * 0x1p-23f - 1.0f);
  }
}

__global__ void count_differences_kernel(const bf16 *a, const bf16 *b, uint64_t n,
                                         uint32_t *differences) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  uint32_t found = 0;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    found += __bfloat16_as_ushort(a[i]) != __bfloat16_as_ushort(b[i]);
  }
  if (found != 0) atomicAdd(differences, found);
}

uint32_t blocks_for(uint64_t n) {
  const uint64_t blocks = (n + kThreads - 1) / kThreads;
  return static_cast<uint32_t>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

}  // namespace

void fill_random(bf16 *values, uint64_t n, uint32_t seed, cudaStream_t stream) {
  fill_random_kernel<<<blocks_for(n), kThreads, 0, stream>>>(values, n, seed);
}

void count_differences(const bf16 *a, const bf16 *b, uint64_t n, uint32_t *differences,
                       cudaStream_t stream) {
  // A failure shows at the launch that follows.
  (void)cudaMemsetAsync(differences, 0, sizeof *differences, stream);
  count_differences_kernel<<<blocks_for(n), kThreads, 0, stream>>>(a, b, n, differences);
}

}  // namespace cua::backend::cuda
