// SPDX-License-Identifier: Apache-2.0
// Kernels that work on one row at a time: bound by memory.
#include "backend/cuda/kernels.h"
#include "backend/cuda/vector_io.cuh"

namespace cua::backend::cuda {
namespace {

constexpr uint32_t kLetters = 26;

__global__ void embed_kernel(const uint32_t *ids, const bf16 *embedding, uint32_t hidden, bf16 *x) {
  const uint64_t from = uint64_t{ids[blockIdx.x]} * hidden, to = uint64_t{blockIdx.x} * hidden;
  for (uint32_t i = threadIdx.x * kVector; i < hidden; i += blockDim.x * kVector) {
    *reinterpret_cast<Bf16x8 *>(x + to + i) =
        *reinterpret_cast<const Bf16x8 *>(embedding + from + i);
  }
}

__global__ void gather_last_kernel(const uint32_t *last_rows, const bf16 *all, uint32_t all_stride,
                                   uint32_t cols, bf16 *last) {
  const uint64_t from = uint64_t{last_rows[blockIdx.x]} * all_stride;
  const uint64_t to = uint64_t{blockIdx.x} * cols;
  for (uint32_t i = threadIdx.x * kVector; i < cols; i += blockDim.x * kVector) {
    *reinterpret_cast<Bf16x8 *>(last + to + i) = *reinterpret_cast<const Bf16x8 *>(all + from + i);
  }
}

// A block takes kRows rows, one vector of each a thread: every row is read once, all at the same
// time, and w once for all.
template <int kRows>
__global__ void __launch_bounds__(1024)
    rms_norm_kernel(const bf16 *x, const float *w, uint32_t rows, uint32_t hidden, float eps,
                    bf16 *y) {
  __shared__ float partial[kRows][32];
  const uint32_t i = threadIdx.x * kVector, first = blockIdx.x * kRows;
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const bool inside = i < hidden;
  float value[kRows][8] = {}, weight[8] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (inside && first + r < rows) load8(x + uint64_t{first + r} * hidden + i, value[r]);
  }
#pragma unroll
  for (int j = 0; j < 8; j += 4) {
    if (!inside) break;
    const float4 four = *reinterpret_cast<const float4 *>(w + i + j);
    weight[j] = 1.0f + four.x;
    weight[j + 1] = 1.0f + four.y;
    weight[j + 2] = 1.0f + four.z;
    weight[j + 3] = 1.0f + four.w;
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += value[r][j] * value[r][j];
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) partial[r][warp] = squares;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (!inside || first + r >= rows) break;
    float squares = 0;
    for (int k = 0; k < warps; ++k) squares += partial[r][k];
    const float scale = rsqrtf(squares / static_cast<float>(hidden) + eps);
#pragma unroll
    for (int j = 0; j < 8; ++j) value[r][j] = value[r][j] * scale * weight[j];
    store8(y + uint64_t{first + r} * hidden + i, value[r]);
  }
}

__global__ void silu_mul_kernel(const bf16 *gate_up, uint32_t intermediate, uint32_t vectors,
                                bf16 *y) {
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= vectors) return;
  const uint32_t per_row = intermediate / kVector;
  const uint32_t row = index / per_row, i = index % per_row * kVector;
  float gate[8], up[8];
  load8(gate_up + uint64_t{row} * 2 * intermediate + i, gate);
  load8(gate_up + uint64_t{row} * 2 * intermediate + intermediate + i, up);
#pragma unroll
  for (int j = 0; j < 8; ++j) up[j] *= round_bf16(silu(gate[j]));
  store8(y + uint64_t{row} * intermediate + i, up);
}

// One warp a head of 128: four values a lane.
__global__ void gated_norm_kernel(const bf16 *x, const bf16 *z, uint32_t z_stride, const float *w,
                                  uint32_t heads_in_all, uint32_t value_heads, float eps, bf16 *y) {
  constexpr int kDim = 128;
  const uint32_t item = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (item >= heads_in_all) return;
  const uint32_t row = item / value_heads, head = item % value_heads;
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t at = uint64_t{item} * kDim + lane * 4;
  const auto *const from = reinterpret_cast<const __nv_bfloat162 *>(x + at);
  const auto *const gate = reinterpret_cast<const __nv_bfloat162 *>(z + uint64_t{row} * z_stride +
                                                                    head * kDim + lane * 4);
  const float2 a = __bfloat1622float2(from[0]), b = __bfloat1622float2(from[1]);
  const float2 c = __bfloat1622float2(gate[0]), d = __bfloat1622float2(gate[1]);
  const float value[4] = {a.x, a.y, b.x, b.y}, gates[4] = {c.x, c.y, d.x, d.y};
  float squares = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) squares += value[j] * value[j];
  const float scale = rsqrtf(warp_sum(squares) / kDim + eps);
  float out[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    out[j] = round_bf16(value[j] * scale) * w[lane * 4 + j] * silu(gates[j]);
  }
  auto *const to = reinterpret_cast<__nv_bfloat162 *>(y + at);
  to[0] = __floats2bfloat162_rn(out[0], out[1]);
  to[1] = __floats2bfloat162_rn(out[2], out[3]);
}

// One block a letter of one sequence.
__global__ void readout_kernel(const bf16 *x, const bf16 *embedding, const uint32_t *letters,
                               uint32_t hidden, float *logits) {
  const uint32_t letter = blockIdx.x, sequence = blockIdx.y;
  const bf16 *const row = x + uint64_t{sequence} * hidden;
  const bf16 *const weights = embedding + uint64_t{letters[letter]} * hidden;
  float sum = 0;
  for (uint32_t i = threadIdx.x * kVector; i < hidden; i += blockDim.x * kVector) {
    float a[8], b[8];
    load8(row + i, a);
    load8(weights + i, b);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += a[j] * b[j];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) logits[sequence * kLetters + letter] = sum;
}

uint32_t threads_for(uint32_t elements) {
  const uint32_t vectors = (elements + kVector - 1) / kVector;
  const uint32_t threads = (vectors + 31) / 32 * 32;
  return threads > 1024 ? 1024 : threads;
}

}  // namespace

void embed(const DeviceBatch &batch, const bf16 *embedding, uint32_t hidden, bf16 *x,
           cudaStream_t stream) {
  embed_kernel<<<batch.rows, threads_for(hidden), 0, stream>>>(batch.ids, embedding, hidden, x);
}

void gather_last(const DeviceBatch &batch, const bf16 *all, uint32_t all_stride, uint32_t cols,
                 bf16 *last, cudaStream_t stream) {
  gather_last_kernel<<<batch.sequences, threads_for(cols), 0, stream>>>(batch.last_rows, all,
                                                                        all_stride, cols, last);
}

void rms_norm(const bf16 *x, const float *w, uint32_t rows, uint32_t hidden, float eps, bf16 *y,
              cudaStream_t stream) {
  // Few rows: each its own block, for the sake of all multiprocessors. The bits are the same.
  constexpr uint32_t kMany = 1024;
  if (rows < kMany) {
    rms_norm_kernel<1><<<rows, threads_for(hidden), 0, stream>>>(x, w, rows, hidden, eps, y);
  } else {
    rms_norm_kernel<4>
        <<<(rows + 3) / 4, threads_for(hidden), 0, stream>>>(x, w, rows, hidden, eps, y);
  }
}

void silu_mul(const bf16 *gate_up, uint32_t rows, uint32_t intermediate, bf16 *y,
              cudaStream_t stream) {
  const uint32_t vectors = rows * (intermediate / kVector);
  silu_mul_kernel<<<(vectors + 255) / 256, 256, 0, stream>>>(gate_up, intermediate, vectors, y);
}

void gated_norm(const bf16 *x, const bf16 *z, uint32_t z_stride, const float *w, uint32_t rows,
                uint32_t value_heads, float eps, bf16 *y, cudaStream_t stream) {
  const uint32_t heads = rows * value_heads;
  gated_norm_kernel<<<(heads + 7) / 8, 256, 0, stream>>>(x, z, z_stride, w, heads, value_heads, eps,
                                                         y);
}

void readout(const bf16 *x, const bf16 *embedding, const uint32_t *letters, uint32_t sequences,
             uint32_t hidden, float *logits, cudaStream_t stream) {
  readout_kernel<<<dim3(kLetters, sequences), 128, 0, stream>>>(x, embedding, letters, hidden,
                                                                logits);
}

}  // namespace cua::backend::cuda
