// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet: the convolution and gates, and the recurrence. Head dimension 128, 4 taps.
#include "backend/cuda/kernels.h"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/vector_io.cuh"

namespace cua::backend::cuda {
namespace {

constexpr int kDim = 128;  // of a head
constexpr int kTaps = 4;

// ---- prepare ---------------------------------------------------------------------------------

constexpr int kRowsOfWarp = 8;    // consecutive rows share the loads of the taps before them
constexpr int kHeadsOfBlock = 4;  // warps

struct Four {
  float value[4];
};

__device__ inline Four load4(const bf16 *from) {
  const auto *const pairs = reinterpret_cast<const __nv_bfloat162 *>(from);
  const float2 a = __bfloat1622float2(pairs[0]), b = __bfloat1622float2(pairs[1]);
  return {{a.x, a.y, b.x, b.y}};
}

__device__ inline void store4(bf16 *to, const Four &four) {
  auto *const pairs = reinterpret_cast<__nv_bfloat162 *>(to);
  pairs[0] = __floats2bfloat162_rn(four.value[0], four.value[1]);
  pairs[1] = __floats2bfloat162_rn(four.value[2], four.value[3]);
}

// A warp takes one head (of q, k or v) of kRowsOfWarp rows: four channels a lane.
__global__ void __launch_bounds__(kHeadsOfBlock * 32)
    gdn_prepare_kernel(DeviceBatch batch, uint32_t layer, GdnShape shape, const bf16 *projected,
                       const float *conv, bf16 *q, bf16 *k, bf16 *v, const LayerState *capture) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t head = blockIdx.y * kHeadsOfBlock + threadIdx.x / 32;  // over q | k | v
  const uint32_t heads = 2 * shape.key_heads + shape.value_heads;
  if (head >= heads) return;
  const uint32_t channel = head * kDim + lane * 4, channels = heads * kDim;
  const uint32_t first = blockIdx.x * kRowsOfWarp;
  const uint32_t last = min(first + kRowsOfWarp, batch.rows);

  float taps[4][kTaps];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float4 w = *reinterpret_cast<const float4 *>(conv + (channel + c) * kTaps);
    taps[c][0] = w.x;
    taps[c][1] = w.y;
    taps[c][2] = w.z;
    taps[c][3] = w.w;
  }

  // Input `back` rows before row `row`: from the sequence, its prefix, or zero.
  const auto input = [&](uint32_t row, uint32_t sequence, uint32_t back) -> Four {
    const uint32_t begin = batch.cu_seqlens[sequence];
    if (row >= begin + back) {
      return load4(projected + uint64_t{row - back} * shape.stride + channel);
    }
    const LayerState *const prefix = batch.prefixes[sequence];
    if (prefix == nullptr) return {};
    const uint32_t missing = begin + back - row;  // 1: the prefix's last row
    return load4(prefix[layer].conv_tail + (kTaps - 1 - missing) * channels + channel);
  };

  Four window[kTaps];  // [3] is the current row
  uint32_t sequence = batch.row_sequence[first];
#pragma unroll
  for (int j = 1; j < kTaps; ++j) window[kTaps - j] = input(first, sequence, j);
  for (uint32_t row = first; row < last; ++row) {
    if (const uint32_t now = batch.row_sequence[row]; now != sequence) {
      sequence = now;
#pragma unroll
      for (int j = 1; j < kTaps; ++j) window[kTaps - j] = input(row, sequence, j);
    }
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) window[j] = window[j + 1];
    window[kTaps - 1] = load4(projected + uint64_t{row} * shape.stride + channel);
    Four out;
    float squares = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) sum += taps[c][j] * window[j].value[c];
      out.value[c] = round_bf16(silu(round_bf16(sum)));
      squares += out.value[c] * out.value[c];
    }
    if (head < 2 * shape.key_heads) {
      const bool is_q = head < shape.key_heads;
      const float scale = rsqrtf(warp_sum(squares) + 1e-6f) * (is_q ? 0.08838834764831845f : 1.0f);
#pragma unroll
      for (int c = 0; c < 4; ++c) out.value[c] *= scale;
      bf16 *const to = is_q ? q : k;
      const uint32_t within = is_q ? head : head - shape.key_heads;
      store4(to + (uint64_t{row} * shape.key_heads + within) * kDim + lane * 4, out);
    } else {
      const uint32_t within = head - 2 * shape.key_heads;
      store4(v + (uint64_t{row} * shape.value_heads + within) * kDim + lane * 4, out);
    }
  }
  if (capture != nullptr && last == batch.rows) {  // one sequence: its last three inputs
#pragma unroll
    for (int j = 1; j < kTaps; ++j) {
      store4(capture[layer].conv_tail + (kTaps - 1 - j) * channels + channel,
             input(batch.rows, 0, j));
    }
  }
}

__global__ void gdn_gates_kernel(uint32_t rows, GdnShape shape, const bf16 *projected,
                                 const float *a_log, const float *dt_bias, float *g, float *beta) {
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= rows * shape.value_heads) return;
  const uint32_t row = index / shape.value_heads, head = index % shape.value_heads;
  const uint32_t b_column = (2 * shape.key_heads + 2 * shape.value_heads) * kDim;
  const bf16 *const from = projected + uint64_t{row} * shape.stride + b_column;
  const float b = __bfloat162float(from[head]);
  const float a = __bfloat162float(from[shape.value_heads + head]) + dt_bias[head];
  beta[index] = round_bf16(1.0f / (1.0f + expf(-b)));
  g[index] = -expf(a_log[head]) * (a > 20.0f ? a : log1pf(expf(a)));
}

// ---- chunks ----------------------------------------------------------------------------------
// With S the state before a chunk of 64 rows, G the running sum of g and T = (1 + A)^-1, where
// A[i, j] = beta_i e^(G_i - G_j) k_i k_j below the diagonal:
//   u = T (beta v), w = T (beta e^G k)                            one block a chunk, all at once
//   d = u - w S, o = e^G q S + P d, S' = e^(G_64) S + (e^(G_64 - G) k)^T d       chunk after chunk
// with P[i, j] = e^(G_i - G_j) q_i k_j on and below the diagonal. Exponents are never positive.
// Chunks start at multiples of 64 of the whole prompt, and a row's sums run over rows before it
// only (the others are multiplied by zeros), so that its bits do not depend on where its prompt was
// split.

constexpr int kChunk = 64;
constexpr int kChunkThreads = 128;   // a warp for 16 rows
constexpr int kWide = kDim + 8;      // row stride of [64, 128] tiles in shared memory
constexpr int kSquare = kChunk + 8;  // of [64, 64] tiles

// Running sums of 64 values by one warp, two a lane, always in the same order.
__device__ inline void running_sums(const float *values, float *sums) {
  const int lane = threadIdx.x % 32;
  const float low = values[2 * lane], both = low + values[2 * lane + 1];
  float before = both;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, before, offset);
    if (lane >= offset) before += other;
  }
  before = __shfl_up_sync(0xffffffffu, before, 1);
  if (lane == 0) before = 0;
  sums[2 * lane] = before + low;
  sums[2 * lane + 1] = before + both;
}

// `count` rows of 128 into a [64, 128] tile, zeros below.
__device__ inline void load_rows(bf16 *tile, const bf16 *from, uint32_t stride, uint32_t count) {
  for (uint32_t i = threadIdx.x; i < kChunk * (kDim / 8); i += kChunkThreads) {
    const uint32_t row = i / (kDim / 8), at = i % (kDim / 8) * 8;
    bf16 *const to = tile + row * kWide + at;
    if (row < count) {
      copy_async(to, from + uint64_t{row} * stride + at);
    } else {
      *reinterpret_cast<uint4 *>(to) = uint4{};
    }
  }
}

struct WithinShared {
  bf16 k[kChunk * kWide], v[kChunk * kWide];
  union {
    bf16 q[kChunk * kWide];
    bf16 t[2][kChunk * kSquare];  // T beta, T beta e^G; once q has been used
  };
  float a[kChunk][kChunk + 1];
  float log_decay[kChunk], g[kChunk], beta[kChunk];  // g: its running sum
};
static_assert(sizeof(bf16[2][kChunk * kSquare]) >= sizeof(bf16[kChunk * kWide]));

// One chunk of one value head: u, w [64, 128] and p [64, 64], all bf16, at index (chunk, head).
__global__ void __launch_bounds__(kChunkThreads)
    gdn_within_kernel(DeviceBatch batch, GdnShape shape, const bf16 *q, const bf16 *k,
                      const bf16 *v, const float *g, const float *beta, bf16 *u, bf16 *w, bf16 *p) {
  extern __shared__ __align__(16) unsigned char memory[];
  WithinShared &shared = *reinterpret_cast<WithinShared *>(memory);
  const QueryTile tile = batch.tiles_all[blockIdx.x];
  const uint32_t head = blockIdx.y;
  const uint32_t key_head = head / (shape.value_heads / shape.key_heads);
  const uint32_t key_stride = shape.key_heads * kDim, value_stride = shape.value_heads * kDim;
  const uint64_t item = uint64_t{blockIdx.x} * shape.value_heads + head;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  load_rows(shared.k, k + uint64_t{tile.row} * key_stride + key_head * kDim, key_stride,
            tile.count);
  load_rows(shared.q, q + uint64_t{tile.row} * key_stride + key_head * kDim, key_stride,
            tile.count);
  commit_async();
  load_rows(shared.v, v + uint64_t{tile.row} * value_stride + head * kDim, value_stride,
            tile.count);
  commit_async();
  {
    const uint32_t i = threadIdx.x % kChunk;
    const bool is_g = threadIdx.x < kChunk;
    const float *const from = is_g ? g : beta;
    (is_g ? shared.log_decay : shared.beta)[i] =
        i < tile.count ? from[uint64_t{tile.row + i} * shape.value_heads + head] : 0.0f;
  }
  wait_async<1>();
  __syncthreads();
  if (warp == 0) running_sums(shared.log_decay, shared.g);

  const int row0 = warp * 16;
  float kk[kChunk / 8][4] = {}, qk[kChunk / 8][4] = {};
#pragma unroll
  for (int d = 0; d < kDim; d += 16) {
    uint32_t ak[4], aq[4];
    Operand<kWide>::a(ak, shared.k, row0, d);
    Operand<kWide>::a(aq, shared.q, row0, d);
#pragma unroll
    for (int n = 0; n < kChunk / 16; ++n) {
      uint32_t b[4];
      Operand<kWide>::b_transposed(b, shared.k, d, n * 16);
      multiply(kk[2 * n], ak, b[0], b[1]);
      multiply(kk[2 * n + 1], ak, b[2], b[3]);
      multiply(qk[2 * n], aq, b[0], b[1]);
      multiply(qk[2 * n + 1], aq, b[2], b[3]);
    }
  }
  __syncthreads();  // g is here
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row0 + lane / 4 + 8 * half, j = n * 8 + lane % 4 * 2;
      float weight[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float decay = j + c <= i ? __expf(shared.g[i] - shared.g[j + c]) : 0.0f;
        weight[c] = qk[n][2 * half + c] * decay;
        shared.a[i][j + c] = j + c < i ? shared.beta[i] * decay * kk[n][2 * half + c] : 0.0f;
      }
      *reinterpret_cast<uint32_t *>(p + item * kChunk * kChunk + i * kChunk + j) =
          pack(weight[0], weight[1]);
    }
  }
  __syncthreads();  // a is whole, and q has been read

  // T by forward substitution, a column a thread.
  if (threadIdx.x < kChunk) {
    const int column = threadIdx.x;
    float t[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      float sum[4] = {};
#pragma unroll
      for (int j = 0; j < i; ++j) sum[j % 4] += shared.a[i][j] * t[j];
      t[i] = (i == column ? 1.0f : 0.0f) - ((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
    const float scale = shared.beta[column], decayed = scale * __expf(shared.g[column]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      shared.t[0][i * kSquare + column] = __float2bfloat16_rn(t[i] * scale);
      shared.t[1][i * kSquare + column] = __float2bfloat16_rn(t[i] * decayed);
    }
  }
  wait_async<0>();
  __syncthreads();

#pragma unroll
  for (int which = 0; which < 2; ++which) {
    const bf16 *const right = which == 0 ? shared.v : shared.k;
    bf16 *const to = (which == 0 ? u : w) + item * kChunk * kDim;
    float out[kDim / 8][4] = {};
#pragma unroll
    for (int j = 0; j < kChunk; j += 16) {
      uint32_t a[4];
      Operand<kSquare>::a(a, shared.t[which], row0, j);
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        uint32_t b[4];
        Operand<kWide>::b(b, right, j, n * 16);
        multiply(out[2 * n], a, b[0], b[1]);
        multiply(out[2 * n + 1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row0 + lane / 4 + 8 * half, j = n * 8 + lane % 4 * 2;
        *reinterpret_cast<uint32_t *>(to + i * kDim + j) =
            pack(out[n][2 * half], out[n][2 * half + 1]);
      }
    }
  }
}

constexpr int kColumns = 32;           // of the state, that a block carries
constexpr int kNarrow = kColumns + 8;  // row stride of [., 32] tiles

struct AcrossStage {
  bf16 w[kChunk * kWide], q[kChunk * kWide], k[kChunk * kWide];
  bf16 p[kChunk * kSquare];
  bf16 u[kChunk * kNarrow];
  float g[kChunk];  // of each row, not yet summed
};

template <int kStages>
struct AcrossShared {
  AcrossStage stage[kStages];
  bf16 state[kDim * kNarrow];
  bf16 d[2][kChunk * kNarrow];  // d, and d e^(G_64 - G)
  float sum[kChunk];            // G
};

// Columns [32 x, 32 x + 32) of the state of one value head, through the chunks of one sequence.
// With two stages the next chunk is fetched meanwhile; one is for cards with less shared memory.
template <int kStages>
__global__ void __launch_bounds__(kChunkThreads)
    gdn_across_kernel(DeviceBatch batch, uint32_t layer, GdnShape shape, const bf16 *q,
                      const bf16 *k, const float *g, const bf16 *u, const bf16 *w, const bf16 *p,
                      bf16 *o, const LayerState *capture) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto &shared = *reinterpret_cast<AcrossShared<kStages> *>(memory);
  const uint32_t sequence = blockIdx.z, head = blockIdx.y, column0 = blockIdx.x * kColumns;
  const uint32_t key_head = head / (shape.value_heads / shape.key_heads);
  const uint32_t key_stride = shape.key_heads * kDim;
  const uint32_t first = batch.cu_tiles[sequence], last = batch.cu_tiles[sequence + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const auto fetch = [&](AcrossStage &stage, uint32_t chunk) {
    const QueryTile tile = batch.tiles_all[chunk];
    const uint64_t item = uint64_t{chunk} * shape.value_heads + head;
    load_rows(stage.w, w + item * kChunk * kDim, kDim, kChunk);
    load_rows(stage.q, q + uint64_t{tile.row} * key_stride + key_head * kDim, key_stride,
              tile.count);
    load_rows(stage.k, k + uint64_t{tile.row} * key_stride + key_head * kDim, key_stride,
              tile.count);
    for (uint32_t i = threadIdx.x; i < kChunk * (kChunk / 8); i += kChunkThreads) {
      const uint32_t row = i / (kChunk / 8), at = i % (kChunk / 8) * 8;
      copy_async(stage.p + row * kSquare + at, p + item * kChunk * kChunk + row * kChunk + at);
    }
    for (uint32_t i = threadIdx.x; i < kChunk * (kColumns / 8); i += kChunkThreads) {
      const uint32_t row = i / (kColumns / 8), at = i % (kColumns / 8) * 8;
      copy_async(stage.u + row * kNarrow + at,
                 u + item * kChunk * kDim + row * kDim + column0 + at);
    }
    if (threadIdx.x < kChunk) {
      stage.g[threadIdx.x] = threadIdx.x < tile.count
                                 ? g[uint64_t{tile.row + threadIdx.x} * shape.value_heads + head]
                                 : 0.0f;
    }
    commit_async();
  };

  // A warp keeps 32 keys: two tiles of 16, by four of 8 columns.
  float state[2][kColumns / 8][4];
  const LayerState *const prefix = batch.prefixes[sequence];
  const auto state_at = [&](float *base, int m, int n, int i) -> float & {
    const uint32_t key = warp * 32 + m * 16 + lane / 4 + i / 2 * 8;
    return base[(uint64_t{head} * kDim + key) * kDim + column0 + n * 8 + lane % 4 * 2 + i % 2];
  };
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        state[m][n][i] = prefix == nullptr ? 0.0f : state_at(prefix[layer].gdn, m, n, i);
      }
    }
  }

  if (kStages == 2) fetch(shared.stage[0], first);
  for (uint32_t chunk = first, turn = 0; chunk < last; ++chunk, turn = (turn + 1) % kStages) {
    const AcrossStage &stage = shared.stage[turn];
    if (kStages == 1) {
      __syncthreads();  // nobody reads the last chunk any more
      fetch(shared.stage[0], chunk);
    }
    const QueryTile tile = batch.tiles_all[chunk];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int key = warp * 32 + m * 16 + lane / 4 + 8 * half;
          *reinterpret_cast<uint32_t *>(shared.state + key * kNarrow + n * 8 + lane % 4 * 2) =
              pack(state[m][n][2 * half], state[m][n][2 * half + 1]);
        }
      }
    }
    wait_async<0>();
    __syncthreads();  // the stage and the state are here; the other stage is free
    if (kStages == 2 && chunk + 1 < last) fetch(shared.stage[(turn + 1) % kStages], chunk + 1);
    if (warp == 0) running_sums(stage.g, shared.sum);

    const int row0 = warp * 16;
    float ws[kColumns / 8][4] = {}, out[kColumns / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t aw[4], aq[4];
      Operand<kWide>::a(aw, stage.w, row0, d);
      Operand<kWide>::a(aq, stage.q, row0, d);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t b[4];
        Operand<kNarrow>::b(b, shared.state, d, n * 16);
        multiply(ws[2 * n], aw, b[0], b[1]);
        multiply(ws[2 * n + 1], aw, b[2], b[3]);
        multiply(out[2 * n], aq, b[0], b[1]);
        multiply(out[2 * n + 1], aq, b[2], b[3]);
      }
    }
    __syncthreads();  // the sums of g are here
    const float total = shared.sum[kChunk - 1];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row0 + lane / 4 + 8 * half;
      const float decay = __expf(shared.sum[i]), rest = __expf(total - shared.sum[i]);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        const int at = i * kNarrow + n * 8 + lane % 4 * 2;
        const float2 left =
            __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(stage.u + at));
        const float low = left.x - ws[n][2 * half], high = left.y - ws[n][2 * half + 1];
        *reinterpret_cast<uint32_t *>(shared.d[0] + at) = pack(low, high);
        *reinterpret_cast<uint32_t *>(shared.d[1] + at) = pack(low * rest, high * rest);
        out[n][2 * half] *= decay;
        out[n][2 * half + 1] *= decay;
      }
    }
    __syncthreads();  // d is whole

#pragma unroll
    for (int j = 0; j < kChunk; j += 16) {
      uint32_t a[4];
      Operand<kSquare>::a(a, stage.p, row0, j);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t b[4];
        Operand<kNarrow>::b(b, shared.d[0], j, n * 16);
        multiply(out[2 * n], a, b[0], b[1]);
        multiply(out[2 * n + 1], a, b[2], b[3]);
      }
    }
    const float decay = __expf(total);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) state[m][n][i] *= decay;
      }
    }
#pragma unroll
    for (int j = 0; j < kChunk; j += 16) {
      uint32_t b[kColumns / 16][4];
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) Operand<kNarrow>::b(b[n], shared.d[1], j, n * 16);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        uint32_t a[4];
        Operand<kWide>::a_transposed(a, stage.k, warp * 32 + m * 16, j);
#pragma unroll
        for (int n = 0; n < kColumns / 16; ++n) {
          multiply(state[m][2 * n], a, b[n][0], b[n][1]);
          multiply(state[m][2 * n + 1], a, b[n][2], b[n][3]);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t i = row0 + lane / 4 + 8 * half;
      if (i >= tile.count) continue;
      bf16 *const to =
          o + (uint64_t{tile.row + i} * shape.value_heads + head) * kDim + column0 + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        *reinterpret_cast<uint32_t *>(to + n * 8) = pack(out[n][2 * half], out[n][2 * half + 1]);
      }
    }
  }
  if (capture != nullptr) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) state_at(capture[layer].gdn, m, n, i) = state[m][n][i];
      }
    }
  }
}

bool two_stages(int shared_bytes) {
  return sizeof(AcrossShared<2>) <= static_cast<size_t>(shared_bytes);
}

}  // namespace

void gdn_prepare(const DeviceBatch &batch, uint32_t layer, const GdnShape &shape,
                 const bf16 *projected, const float *conv, const float *a_log, const float *dt_bias,
                 bf16 *q, bf16 *k, bf16 *v, float *g, float *beta, const LayerState *capture,
                 cudaStream_t stream) {
  const uint32_t heads = 2 * shape.key_heads + shape.value_heads;
  const dim3 grid((batch.rows + kRowsOfWarp - 1) / kRowsOfWarp,
                  (heads + kHeadsOfBlock - 1) / kHeadsOfBlock);
  gdn_prepare_kernel<<<grid, kHeadsOfBlock * 32, 0, stream>>>(batch, layer, shape, projected, conv,
                                                              q, k, v, capture);
  const uint32_t gates = batch.rows * shape.value_heads;
  gdn_gates_kernel<<<(gates + 255) / 256, 256, 0, stream>>>(batch.rows, shape, projected, a_log,
                                                            dt_bias, g, beta);
}

uint64_t gdn_scan_elements(uint32_t chunks, uint32_t value_heads) {
  return uint64_t{chunks} * value_heads * (2 * kChunk * kDim + kChunk * kChunk);
}

cudaError_t allow_gdn_scan(int shared_bytes) {
  const auto allow = [](auto *kernel, size_t bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
  };
  const cudaError_t status = allow(gdn_within_kernel, sizeof(WithinShared));
  if (status != cudaSuccess) return status;
  if (two_stages(shared_bytes)) return allow(gdn_across_kernel<2>, sizeof(AcrossShared<2>));
  return allow(gdn_across_kernel<1>, sizeof(AcrossShared<1>));
}

void gdn_scan(const DeviceBatch &batch, uint32_t layer, const GdnShape &shape, const bf16 *q,
              const bf16 *k, const bf16 *v, const float *g, const float *beta, bf16 *workspace,
              bf16 *o, const LayerState *capture, int shared_bytes, cudaStream_t stream) {
  const uint64_t items = uint64_t{batch.tile_count} * shape.value_heads;
  bf16 *const u = workspace, *const w = u + items * kChunk * kDim,
              *const p = w + items * kChunk * kDim;
  gdn_within_kernel<<<dim3(batch.tile_count, shape.value_heads), kChunkThreads,
                      sizeof(WithinShared), stream>>>(batch, shape, q, k, v, g, beta, u, w, p);
  const dim3 grid(kDim / kColumns, shape.value_heads, batch.sequences);
  if (two_stages(shared_bytes)) {
    gdn_across_kernel<2><<<grid, kChunkThreads, sizeof(AcrossShared<2>), stream>>>(
        batch, layer, shape, q, k, g, u, w, p, o, capture);
  } else {
    gdn_across_kernel<1><<<grid, kChunkThreads, sizeof(AcrossShared<1>), stream>>>(
        batch, layer, shape, q, k, g, u, w, p, o, capture);
  }
}

}  // namespace cua::backend::cuda
