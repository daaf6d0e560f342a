// SPDX-License-Identifier: Apache-2.0
// Causal grouped-query attention, head_dim 256, in the manner of FlashAttention: one pass over
// tiles of 64 keys with a running maximum. Tiles start at multiples of 64 of the whole prompt, and
// a query meets them in order, so that its bits depend on nothing but itself and the keys before
// it.
#include "backend/cuda/kernels.h"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/vector_io.cuh"

namespace cua::backend::cuda {
namespace {

constexpr int kDim = 256;
constexpr int kRotary = 64;
constexpr int kTile = 64;  // queries and keys of a block's step
constexpr int kWarps = 4;  // 16 queries each
constexpr int kThreads = kWarps * 32;
constexpr int kTileElements = kTile * kDim;
constexpr size_t kSharedBytes = 3 * kTileElements * sizeof(bf16);  // q, k, v

// ---- prepare ---------------------------------------------------------------------------------

// A warp normalises and rotates one head of one row: eight dimensions a lane.
__device__ inline void norm_and_rotate(bf16 *head, const float *w, const float *rotary, float eps) {
  const uint32_t lane = threadIdx.x % 32;
  float value[8];
  load8(head + lane * 8, value);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) squares += value[i] * value[i];
  const float scale = rsqrtf(warp_sum(squares) / kDim + eps);
#pragma unroll
  for (int i = 0; i < 8; ++i) value[i] = round_bf16(value[i] * scale * (1.0f + w[lane * 8 + i]));
  // Dimension j < 32 pairs with j + 32: lane l < 4 with lane l + 4.
  const uint32_t pair = lane % 4 * 8;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float other = __shfl_xor_sync(0xffffffffu, value[i], 4);
    if (lane < kRotary / 8) {
      const float cosine = rotary[pair + i], sine = rotary[kRotary / 2 + pair + i];
      value[i] = lane < 4 ? value[i] * cosine - other * sine : value[i] * cosine + other * sine;
    }
  }
  store8(head + lane * 8, value);
}

__global__ void prepare_q_kernel(const QueryTile *tiles, AttentionShape shape, bf16 *q_gate,
                                 const float *q_norm, const float *rotary, float eps) {
  const QueryTile tile = tiles[blockIdx.x];
  const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (uint32_t item = blockIdx.y * warps + warp; item < tile.count * shape.heads;
       item += gridDim.y * warps) {
    const uint32_t i = item / shape.heads, head = item % shape.heads;
    norm_and_rotate(q_gate + uint64_t{tile.row + i} * shape.q_stride + head * 2 * kDim, q_norm,
                    rotary + uint64_t{tile.position + i} * kRotary, eps);
  }
}

__global__ void prepare_k_kernel(DeviceBatch batch, AttentionShape shape, bf16 *kv,
                                 const float *k_norm, const float *rotary, float eps,
                                 bf16 *capture) {
  const uint32_t item = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (item >= batch.rows * shape.kv_heads) return;
  const uint32_t row = item / shape.kv_heads, head = item % shape.kv_heads;
  const uint32_t sequence = batch.row_sequence[row];
  const uint32_t position = batch.prefix_tokens[sequence] + row - batch.cu_seqlens[sequence];
  bf16 *const k = kv + uint64_t{row} * shape.kv_stride + head * kDim;
  norm_and_rotate(k, k_norm, rotary + uint64_t{position} * kRotary, eps);
  if (capture == nullptr) return;
  const uint32_t width = shape.kv_heads * kDim, lane = threadIdx.x % 32;
  bf16 *const to = capture + uint64_t{position} * 2 * width + head * kDim + lane * 8;
  *reinterpret_cast<Bf16x8 *>(to) = *reinterpret_cast<const Bf16x8 *>(k + lane * 8);
  *reinterpret_cast<Bf16x8 *>(to + width) = *reinterpret_cast<const Bf16x8 *>(k + width + lane * 8);
}

// ---- attention -------------------------------------------------------------------------------

// Element offset of 8 values in a [64, 256] tile; 16-byte pieces are swizzled over the banks.
__device__ inline uint32_t swizzled(uint32_t row, uint32_t piece) {
  return row * kDim + ((piece ^ (row & 7)) * 8);
}

// Rows [0, count) of `from` into a tile, zeros below. 16 bytes a copy.
__device__ inline void load_tile(bf16 *tile, const bf16 *from, uint32_t stride, uint32_t count) {
  for (uint32_t i = threadIdx.x; i < kTile * (kDim / 8); i += kThreads) {
    const uint32_t row = i / (kDim / 8), piece = i % (kDim / 8);
    bf16 *const to = tile + swizzled(row, piece);
    if (row < count) {
      copy_async(to, from + uint64_t{row} * stride + piece * 8);
    } else {
      *reinterpret_cast<uint4 *>(to) = uint4{};
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(DeviceBatch batch, const QueryTile *tiles, uint32_t layer,
                     AttentionShape shape, const bf16 *q_gate, const bf16 *kv, bf16 *o) {
  extern __shared__ __align__(128) unsigned char shared[];
  bf16 *const q_tile = reinterpret_cast<bf16 *>(shared);
  bf16 *const k_tile = q_tile + kTileElements;
  bf16 *const v_tile = k_tile + kTileElements;

  // The last tiles have the most keys: start them first.
  const QueryTile tile = tiles[gridDim.x - 1 - blockIdx.x];
  const uint32_t head = blockIdx.y, kv_head = head / (shape.heads / shape.kv_heads);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t prefix_tokens = batch.prefix_tokens[tile.sequence];
  const uint32_t keys = tile.position + tile.count;  // that the last query sees
  const bf16 *const own = kv + uint64_t{batch.cu_seqlens[tile.sequence]} * shape.kv_stride;
  const LayerState *const states = batch.prefixes[tile.sequence];
  const bf16 *const before = states == nullptr ? nullptr : states[layer].kv;
  const uint32_t kv_width = shape.kv_heads * kDim;

  const auto load_keys = [&](bf16 *to, uint32_t first, uint32_t offset) {
    const uint32_t count = min(static_cast<uint32_t>(kTile), keys - first);
    if (first < prefix_tokens) {
      load_tile(to, before + uint64_t{first} * 2 * kv_width + kv_head * kDim + offset, 2 * kv_width,
                count);
    } else {
      load_tile(to,
                own + uint64_t{first - prefix_tokens} * shape.kv_stride + kv_head * kDim + offset,
                shape.kv_stride, count);
    }
  };

  load_tile(q_tile, q_gate + uint64_t{tile.row} * shape.q_stride + head * 2 * kDim, shape.q_stride,
            tile.count);
  load_keys(k_tile, 0, 0);
  commit_async();

  constexpr float kScale = 0.0625f * 1.4426950408889634f;  // 256^-0.5, and e^x as 2^x
  float out[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  // This thread's rows of the accumulators: 16 warp + lane / 4, and 8 below.
  const uint32_t row = warp * 16 + lane / 4;
  const uint32_t position[2] = {tile.position + row, tile.position + row + 8};

  for (uint32_t first = 0; first < keys; first += kTile) {
    wait_async<0>();
    __syncthreads();  // k is here; v is free
    load_keys(v_tile, first, kv_width);
    commit_async();

    float score[kTile / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t a[4];
      load_matrix(a, q_tile + swizzled(warp * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
      for (int n = 0; n < kTile / 16; ++n) {
        uint32_t b[4];
        load_matrix(b, k_tile + swizzled(n * 16 + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
        multiply(score[2 * n], a, b[0], b[1]);
        multiply(score[2 * n + 1], a, b[2], b[3]);
      }
    }

    const bool whole = first + kTile - 1 <= tile.position;  // every query sees every key
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t key = first + n * 8 + lane % 4 * 2 + i % 2;
        score[n][i] = whole || key <= position[i / 2] ? score[n][i] * kScale : -INFINITY;
      }
    }
    // Every query sees key 0, so that the maximum is finite from the first tile on.
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        most = fmaxf(most, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      shrink[half] = exp2f(largest[half] - most);
      largest[half] = most;
      total[half] *= shrink[half];
    }
    uint32_t weights[kTile / 16][4];
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float low = exp2f(score[n][2 * half] - largest[half]);
        const float high = exp2f(score[n][2 * half + 1] - largest[half]);
        total[half] += low + high;
        weights[n / 2][n % 2 * 2 + half] = pack(low, high);
      }
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] *= shrink[i / 2];
    }

    wait_async<0>();
    __syncthreads();  // v is here; k is free
    if (first + kTile < keys) load_keys(k_tile, first + kTile, 0);
    commit_async();
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
      for (int j = 0; j < kTile / 16; ++j) {
        uint32_t b[4];
        load_matrix_transposed(b, v_tile + swizzled(j * 16 + lane % 16, n * 2 + lane / 16));
        multiply(out[2 * n], weights[j], b[0], b[1]);
        multiply(out[2 * n + 1], weights[j], b[2], b[3]);
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = total[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const uint32_t query = row + 8 * half;
    if (query >= tile.count) continue;
    const bf16 *const gate =
        q_gate + uint64_t{tile.row + query} * shape.q_stride + head * 2 * kDim + kDim;
    bf16 *const to = o + (uint64_t{tile.row + query} * shape.heads + head) * kDim;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const uint32_t column = n * 8 + lane % 4 * 2;
      const float2 g = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(gate + column));
      const float low = round_bf16(out[n][2 * half] / sum) / (1.0f + __expf(-g.x));
      const float high = round_bf16(out[n][2 * half + 1] / sum) / (1.0f + __expf(-g.y));
      *reinterpret_cast<__nv_bfloat162 *>(to + column) = __floats2bfloat162_rn(low, high);
    }
  }
}

}  // namespace

void attention_prepare(const DeviceBatch &batch, const QueryTile *tiles, uint32_t tile_count,
                       const AttentionShape &shape, bf16 *q_gate, bf16 *kv, const float *q_norm,
                       const float *k_norm, const float *rotary, float eps, bf16 *capture,
                       cudaStream_t stream) {
  prepare_q_kernel<<<dim3(tile_count, 8), 256, 0, stream>>>(tiles, shape, q_gate, q_norm, rotary,
                                                            eps);
  const uint32_t items = batch.rows * shape.kv_heads;
  prepare_k_kernel<<<(items + 7) / 8, 256, 0, stream>>>(batch, shape, kv, k_norm, rotary, eps,
                                                        capture);
}

cudaError_t allow_attention() {
  return cudaFuncSetAttribute(attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kSharedBytes));
}

void attention(const DeviceBatch &batch, const QueryTile *tiles, uint32_t tile_count,
               uint32_t layer, const AttentionShape &shape, const bf16 *q_gate, const bf16 *kv,
               bf16 *o, cudaStream_t stream) {
  attention_kernel<<<dim3(tile_count, shape.heads), kThreads, kSharedBytes, stream>>>(
      batch, tiles, layer, shape, q_gate, kv, o);
}

}  // namespace cua::backend::cuda
