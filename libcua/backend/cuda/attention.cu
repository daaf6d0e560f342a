// SPDX-License-Identifier: Apache-2.0
// Causal grouped-query attention, head_dim 256, in the manner of FlashAttention: one pass over
// tiles of 64 keys with a running maximum. Tiles start at multiples of 64 of the whole prompt, and
// a query meets them in order, so that its bits depend on nothing but itself and the keys before
// it.
#include "backend/cuda/kernels.h"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/vector_io.cuh"
#include "backend/cuda/wgmma.cuh"

namespace cua::backend::cuda {
namespace {

constexpr int kDim = 256;
constexpr int kRotary = 64;
constexpr int kTile = 64;  // queries and keys of a block's step
constexpr int kWarps = 4;  // 16 queries each
constexpr int kThreads = kWarps * 32;
constexpr int kTileElements = kTile * kDim;
constexpr int kPanel = 64;  // columns of a panel; a tile is four of them
constexpr size_t kSharedAlignment = 1024;
constexpr size_t kSharedBytes = 3 * kTileElements * sizeof(bf16) + kSharedAlignment;  // q, k, v

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
  float weight[8];
  load_floats(w + lane * 8, weight);
#pragma unroll
  for (int i = 0; i < 8; ++i) value[i] = round_bf16(value[i] * scale * (1.0f + weight[i]));
  // Dimension j < 32 pairs with j + 32: lane l < 4 with lane l + 4.
  float other[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) other[i] = __shfl_xor_sync(0xffffffffu, value[i], 4);
  if (lane < kRotary / 8) {
    float cosine[8], sine[8];
    load_floats(rotary + lane % 4 * 8, cosine);
    load_floats(rotary + kRotary / 2 + lane % 4 * 8, sine);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      value[i] = lane < 4 ? value[i] * cosine[i] - other[i] * sine[i]
                          : value[i] * cosine[i] + other[i] * sine[i];
    }
  }
  store8(head + lane * 8, value);
}

// A warp an item: the heads of q of every query, then the heads of k of every row.
__global__ void attention_prepare_kernel(DeviceBatch batch, bool last, AttentionShape shape,
                                         bf16 *q_gate, bf16 *kv, const float *q_norm,
                                         const float *k_norm, const float *rotary, float eps,
                                         bf16 *capture) {
  const uint32_t queries = last ? batch.sequences : batch.rows;
  uint32_t item = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const bool is_q = item < queries * shape.heads;
  if (!is_q) item -= queries * shape.heads;
  const uint32_t heads = is_q ? shape.heads : shape.kv_heads;
  const uint32_t row = item / heads, head = item % heads;
  if (row >= (is_q ? queries : batch.rows)) return;
  const bool is_last = is_q && last;  // then row is the sequence
  const uint32_t sequence = is_last ? row : batch.row_sequence[row];
  const uint32_t within =
      (is_last ? batch.last_rows[row] : row) - batch.cu_seqlens[sequence];
  const uint32_t position = batch.prefix_tokens[sequence] + within;
  bf16 *const at = is_q ? q_gate + uint64_t{row} * shape.q_stride + head * 2 * kDim
                        : kv + uint64_t{row} * shape.kv_stride + head * kDim;
  norm_and_rotate(at, is_q ? q_norm : k_norm, rotary + uint64_t{position} * kRotary, eps);
  if (is_q || capture == nullptr) return;
  const uint32_t width = shape.kv_heads * kDim, lane = threadIdx.x % 32;
  bf16 *const to = capture + uint64_t{position} * 2 * width + head * kDim + lane * 8;
  *reinterpret_cast<Bf16x8 *>(to) = *reinterpret_cast<const Bf16x8 *>(at + lane * 8);
  *reinterpret_cast<Bf16x8 *>(to + width) =
      *reinterpret_cast<const Bf16x8 *>(at + width + lane * 8);
}

// ---- attention -------------------------------------------------------------------------------

// Element offset of 8 values in a [64, 256] tile of panels (see wgmma.cuh); their swizzle also
// keeps eight rows out of each other's banks.
__device__ inline uint32_t swizzled(uint32_t row, uint32_t piece) {
  return piece / 8 * (kTile * kPanel) + row * kPanel + ((piece ^ row) & 7) * 8;
}

// Rows [0, count) of `from` into a tile, zeros below. 16 bytes a copy.
__device__ inline void load_tile(bf16 *tile, const bf16 *from, uint32_t stride, uint32_t count) {
  const uint32_t piece = threadIdx.x % 32;
#pragma unroll 4
  for (uint32_t row = threadIdx.x / 32; row < kTile; row += kWarps) {
    copy_async(tile + swizzled(row, piece), from + uint64_t{row} * stride + piece * 8, row < count);
  }
}

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// score[64, 64] += q k^T, by the block; accumulators of a warp as in mma.cuh, rows from 16 warp on.
__device__ inline void multiply_keys(float (&score)[kTile / 8][4], const bf16 *q_tile,
                                     const bf16 *k_tile) {
#ifdef CUA_WGMMA
  warpgroup_arrive();
#pragma unroll 1
  for (int panel = 0; panel < kDim / kPanel; ++panel) {
    const uint64_t q = panel_descriptor(q_tile + panel * kTile * kPanel);
    const uint64_t k = panel_descriptor(k_tile + panel * kTile * kPanel);
#pragma unroll
    for (int d = 0; d < kPanel / 16; ++d) warpgroup_multiply(score, q + d * 2, k + d * 2);
  }
  warpgroup_commit();
  warpgroup_wait();
#else
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 4
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
#endif
}

// out[64, 256] += weights[64, 64] v
__device__ inline void add_values(float (&out)[kDim / 8][4],
                                  const uint32_t (&weights)[kTile / 16][4], const bf16 *v_tile) {
#ifdef CUA_WGMMA
  warpgroup_arrive();
#pragma unroll
  for (int panel = 0; panel < kDim / kPanel; ++panel) {
    const uint64_t v = panel_descriptor(v_tile + panel * kTile * kPanel);
#pragma unroll
    for (int j = 0; j < kTile / 16; ++j) {
      warpgroup_multiply(out + panel * (kPanel / 8), weights[j], v + j * (16 * kPanel * 2 >> 4));
    }
  }
  warpgroup_commit();
  warpgroup_wait();
#else
  const uint32_t lane = threadIdx.x % 32;
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
#endif
}

// Until the tiles that were asked for are there, for the whole block.
__device__ inline void wait_for_tiles() {
  wait_async<0>();
#ifdef CUA_WGMMA
  show_to_tensor_cores();
#endif
  __syncthreads();
}

// The loops are unrolled no further than registers need: for short prompts fetching the
// instructions takes longer than running them.
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(DeviceBatch batch, const QueryTile *tiles, uint32_t layer,
                     AttentionShape shape, const bf16 *q_gate, const bf16 *kv, bf16 *o) {
  extern __shared__ unsigned char shared[];
  bf16 *const q_tile = reinterpret_cast<bf16 *>(
      shared +
      (kSharedAlignment - __cvta_generic_to_shared(shared) % kSharedAlignment) % kSharedAlignment);
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
    const bool is_before = first < prefix_tokens;  // a tile is on one side
    const bf16 *const from = is_before ? before + uint64_t{first} * 2 * kv_width
                                       : own + uint64_t{first - prefix_tokens} * shape.kv_stride;
    load_tile(to, from + kv_head * kDim + offset, is_before ? 2 * kv_width : shape.kv_stride,
              count);
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
    wait_for_tiles();  // k is here; v is free
    load_keys(v_tile, first, kv_width);
    commit_async();

    float score[kTile / 8][4] = {};
    multiply_keys(score, q_tile, k_tile);
    if (first + kTile - 1 > tile.position) {  // not every query sees every key
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t key = first + n * 8 + lane % 4 * 2 + i % 2;
          if (key > position[i / 2]) score[n][i] = -INFINITY;
        }
      }
    }
    // Every query sees key 0, so that the maximum is finite from the first tile on.
    float shrink[2], shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        most = fmaxf(most, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      shrink[half] = power_of_two((largest[half] - most) * kScale);
      largest[half] = most;
      shift[half] = -most * kScale;
      total[half] *= shrink[half];
    }
    uint32_t weights[kTile / 16][4];
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float low = power_of_two(fmaf(score[n][2 * half], kScale, shift[half]));
        const float high = power_of_two(fmaf(score[n][2 * half + 1], kScale, shift[half]));
        total[half] += low + high;
        weights[n / 2][n % 2 * 2 + half] = pack(low, high);
      }
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] *= shrink[i / 2];
    }

    wait_for_tiles();  // v is here; k is free
    if (first + kTile < keys) load_keys(k_tile, first + kTile, 0);
    commit_async();
    add_values(out, weights, v_tile);
  }

  // Through the warp's own rows of the tile of q, to read the gate and write in whole vectors.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = total[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float scale = 1.0f / sum;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<uint32_t *>(q_tile + swizzled(row + 8 * half, n) + lane % 4 * 2) =
          pack(out[n][2 * half] * scale, out[n][2 * half + 1] * scale);
    }
  }
  __syncwarp();
#pragma unroll 2
  for (uint32_t query = warp * 16; query < min(warp * 16 + 16, tile.count); ++query) {
    const bf16 *const gates =
        q_gate + uint64_t{tile.row + query} * shape.q_stride + head * 2 * kDim + kDim;
    float value[8], gate[8];
    load8(q_tile + swizzled(query, lane), value);
    load8(gates + lane * 8, gate);
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = __fdividef(value[i], 1.0f + __expf(-gate[i]));
    store8(o + (uint64_t{tile.row + query} * shape.heads + head) * kDim + lane * 8, value);
  }
}

}  // namespace

void attention_prepare(const DeviceBatch &batch, bool last, const AttentionShape &shape,
                       bf16 *q_gate, bf16 *kv, const float *q_norm, const float *k_norm,
                       const float *rotary, float eps, bf16 *capture, cudaStream_t stream) {
  const uint32_t queries = last ? batch.sequences : batch.rows;
  const uint32_t items = queries * shape.heads + batch.rows * shape.kv_heads;
  attention_prepare_kernel<<<(items + 7) / 8, 256, 0, stream>>>(
      batch, last, shape, q_gate, kv, q_norm, k_norm, rotary, eps, capture);
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
