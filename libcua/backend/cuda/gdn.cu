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

__device__ inline Four widen(uint2 raw) {
  const float2 a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&raw.x));
  const float2 b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&raw.y));
  return {{a.x, a.y, b.x, b.y}};
}

__device__ inline void store4(bf16 *to, const Four &four) {
  auto *const pairs = reinterpret_cast<__nv_bfloat162 *>(to);
  pairs[0] = __floats2bfloat162_rn(four.value[0], four.value[1]);
  pairs[1] = __floats2bfloat162_rn(four.value[2], four.value[3]);
}

__device__ inline void gdn_gates(uint32_t first, uint32_t last, const GdnShape &shape,
                                 const bf16 *projected, const float *a_log, const float *dt_bias,
                                 float *g, float *beta) {
  const uint32_t b_column = (2 * shape.key_heads + 2 * shape.value_heads) * kDim;
  for (uint32_t index = first * shape.value_heads + threadIdx.x; index < last * shape.value_heads;
       index += blockDim.x) {
    const uint32_t row = index / shape.value_heads, head = index % shape.value_heads;
    const bf16 *const from = projected + uint64_t{row} * shape.stride + b_column;
    const float b = __bfloat162float(from[head]);
    const float a = __bfloat162float(from[shape.value_heads + head]) + dt_bias[head];
    beta[index] = round_bf16(1.0f / (1.0f + expf(-b)));
    g[index] = -expf(a_log[head]) * (a > 20.0f ? a : log1pf(expf(a)));
  }
}

// Four channels of the input that stands `back` rows before the first of a sequence. Rare: kept out
// of the way of the rest.
__device__ __noinline__ uint2 input_before(const LayerState *prefix, uint32_t layer, uint32_t back,
                                           uint32_t channels, uint32_t channel) {
  if (prefix == nullptr) return {};
  return *reinterpret_cast<const uint2 *>(prefix[layer].conv_tail + (kTaps - 1 - back) * channels +
                                          channel);
}

// A warp takes one head (of q, k or v) of kRowsOfWarp rows: four channels a lane. The last group of
// blocks takes the gates of those rows.
__global__ void __launch_bounds__(kHeadsOfBlock * 32)
    gdn_prepare_kernel(DeviceBatch batch, uint32_t layer, GdnShape shape, const bf16 *projected,
                       const float *conv, const float *a_log, const float *dt_bias, bf16 *q,
                       bf16 *k, bf16 *v, float *g, float *beta, const LayerState *capture) {
  const uint32_t first = blockIdx.x * kRowsOfWarp;
  const uint32_t last = min(first + kRowsOfWarp, batch.rows);
  if (blockIdx.y + 1 == gridDim.y) {
    gdn_gates(first, last, shape, projected, a_log, dt_bias, g, beta);
    return;
  }
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t head = blockIdx.y * kHeadsOfBlock + threadIdx.x / 32;  // over q | k | v
  const uint32_t heads = 2 * shape.key_heads + shape.value_heads;
  if (head >= heads) return;
  const uint32_t channel = head * kDim + lane * 4, channels = heads * kDim;

  // All at once, so that they wait for memory together: the rows, and those before them.
  uint2 raw[kRowsOfWarp], earlier[kTaps - 1];
  const auto at_row = [&](uint32_t row) -> uint2 {  // a row that is none wraps around
    return row < batch.rows ? *reinterpret_cast<const uint2 *>(
                                  projected + uint64_t{row} * shape.stride + channel)
                            : uint2{};
  };
#pragma unroll
  for (int j = 0; j < kTaps - 1; ++j) earlier[j] = at_row(first + j - (kTaps - 1));
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j) raw[j] = at_row(first + j);
  float taps[4][kTaps];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float4 w = *reinterpret_cast<const float4 *>(conv + (channel + c) * kTaps);
    taps[c][0] = w.x;
    taps[c][1] = w.y;
    taps[c][2] = w.z;
    taps[c][3] = w.w;
  }

  uint32_t sequence = batch.row_sequence[first];  // the row's
  uint32_t end = batch.cu_seqlens[sequence + 1];
  Four window[kTaps - 1];  // the rows of its sequence before it
  {
    const uint32_t begin = batch.cu_seqlens[sequence];
#pragma unroll
    for (uint32_t back = 1; back < kTaps; ++back) {
      window[kTaps - 1 - back] =
          widen(first >= begin + back ? earlier[kTaps - 1 - back]
                                      : input_before(batch.prefixes[sequence], layer,
                                                     begin + back - first, channels, channel));
    }
  }
  const bool is_v = head >= 2 * shape.key_heads, is_q = head < shape.key_heads;
  const uint32_t within = is_v ? head - 2 * shape.key_heads : is_q ? head : head - shape.key_heads;
  const uint64_t out_stride = uint64_t{is_v ? shape.value_heads : shape.key_heads} * kDim;
  bf16 *const out_base = (is_v ? v : is_q ? q : k) + within * kDim + lane * 4;

  constexpr int kStep = 4;  // rows; all eight would take longer to fetch than to run
#pragma unroll 1
  for (uint32_t row0 = first; row0 < last; row0 += kStep) {
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const uint32_t row = row0 + i;
      if (row >= last) break;
      if (row >= end) {  // another sequence begins
        sequence = batch.row_sequence[row];
        end = batch.cu_seqlens[sequence + 1];
#pragma unroll 1
        for (uint32_t back = 1; back < kTaps; ++back) {
          const Four in =
              widen(input_before(batch.prefixes[sequence], layer, back, channels, channel));
          if (back == 1) window[2] = in;
          if (back == 2) window[1] = in;
          if (back == 3) window[0] = in;
        }
      }
      const Four now = widen(raw[i]);
      Four out;
      float squares = 0;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kTaps - 1; ++j) sum += taps[c][j] * window[j].value[c];
        sum += taps[c][kTaps - 1] * now.value[c];
        out.value[c] = round_bf16(silu(round_bf16(sum)));
        squares += out.value[c] * out.value[c];
      }
      if (!is_v) {
        const float scale =
            rsqrtf(warp_sum(squares) + 1e-6f) * (is_q ? 0.08838834764831845f : 1.0f);
#pragma unroll
        for (int c = 0; c < 4; ++c) out.value[c] *= scale;
      }
      store4(out_base + row * out_stride, out);
      window[0] = window[1];
      window[1] = window[2];
      window[2] = now;
    }
#pragma unroll
    for (int i = 0; i < kRowsOfWarp - kStep; ++i) raw[i] = raw[i + kStep];
  }
  if (capture != nullptr && last == batch.rows) {  // one sequence: its last three inputs
    for (uint32_t back = 1; back < kTaps; ++back) {
      const uint2 tail =
          batch.rows >= back
              ? *reinterpret_cast<const uint2 *>(
                    projected + uint64_t{batch.rows - back} * shape.stride + channel)
              : input_before(batch.prefixes[0], layer, back - batch.rows, channels, channel);
      *reinterpret_cast<uint2 *>(capture[layer].conv_tail + (kTaps - 1 - back) * channels +
                                 channel) = tail;
    }
  }
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
constexpr int kWithinThreads = 128;  // a warp for 16 rows
constexpr int kAcrossThreads = 256;  // two
constexpr int kWide = kDim + 8;      // row stride of [64, 128] tiles in shared memory
constexpr int kSquare = kChunk + 8;  // of [64, 64] tiles
constexpr int kSolve = kChunk + 4;   // of the fp32 one

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
template <int kThreads>
__device__ inline void load_rows(bf16 *tile, const bf16 *from, uint32_t stride, uint32_t count) {
  const uint32_t at = threadIdx.x % (kDim / 8) * 8;
#pragma unroll 2
  for (uint32_t row = threadIdx.x / (kDim / 8); row < kChunk; row += kThreads / (kDim / 8)) {
    copy_async(tile + row * kWide + at, from + uint64_t{row} * stride + at, row < count);
  }
}

// ---- T = (1 + A)^-1, in place, by blocks of 16
// The diagonal blocks become those of T; block (i, j) of T below them is written where block (j, i)
// of A is zero, since A is needed to the end.

constexpr int kBlock = 16;

__device__ inline float *block_of(float *a, int i, int j) { return a + (i * kSolve + j) * kBlock; }

// One warp: the inverse of a unit lower triangular block whose part below the diagonal is given.
// A column a lane.
__device__ inline void invert_block(float *block) {
  const int column = threadIdx.x % 32;
  float t[kBlock];
  if (column < kBlock) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      float sum[2] = {};
#pragma unroll
      for (int j = 0; j < i; ++j) sum[j % 2] += block[i * kSolve + j] * t[j];
      t[i] = (i == column ? 1.0f : 0.0f) - (sum[0] + sum[1]);
    }
  }
  __syncwarp();
  if (column < kBlock) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) block[i * kSolve + column] = t[i];
  }
}

// A float as two tf32, which together keep 21 of its 24 bits.
struct Split {
  uint32_t high, low;
};
__device__ inline Split split(float x) {
  Split s;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(s.high) : "f"(x));
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(s.low) : "f"(x - __uint_as_float(s.high)));
  return s;
}

__device__ inline void multiply_tf32(float (&c)[4], const uint32_t (&a)[4],
                                     const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// One warp: c += a b, blocks of 16 x 16, to nearly all bits of fp32.
__device__ inline void multiply_blocks(float (&c)[2][4], const float *a, const float *b) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < kBlock; k += 8) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Split s = split(a[(g + i % 2 * 8) * kSolve + k + t + i / 2 * 4]);
      high[i] = s.high;
      low[i] = s.low;
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Split top = split(b[(k + t) * kSolve + n * 8 + g]);
      const Split bottom = split(b[(k + t + 4) * kSolve + n * 8 + g]);
      multiply_tf32(c[n], low, {top.high, bottom.high});
      multiply_tf32(c[n], high, {top.low, bottom.low});
      multiply_tf32(c[n], high, {top.high, bottom.high});
    }
  }
}

__device__ inline void store_block(float *to, const float (&c)[2][4], float sign) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[(g + i / 2 * 8) * kSolve + n * 8 + 2 * t + i % 2] = sign * c[n][i];
    }
  }
}

// By the whole block of threads; ends with a barrier.
__device__ inline void invert(float *a) {
  const int warp = threadIdx.x / 32;
  invert_block(block_of(a, warp, warp));
  __syncthreads();
#pragma unroll 1
  for (int below = 1; below < kChunk / kBlock; ++below) {
    const int j = warp, i = warp + below;
    if (i < kChunk / kBlock) {
      float sum[2][4] = {}, product[2][4] = {};
#pragma unroll 1
      for (int k = j; k < i; ++k) multiply_blocks(sum, block_of(a, i, k), block_of(a, j, k));
      float *const to = block_of(a, j, i);
      store_block(to, sum, 1.0f);
      __syncwarp();
      multiply_blocks(product, block_of(a, i, i), to);
      __syncwarp();
      store_block(to, product, -1.0f);
    }
    __syncthreads();
  }
}

struct WithinShared {
  bf16 k[kChunk * kWide], v[kChunk * kWide];
  union {
    bf16 q[kChunk * kWide];
    bf16 t[2][kChunk * kSquare];  // T beta, T beta e^G; once q has been used
  };
  float a[kChunk * kSolve];                          // A, then T
  float log_decay[kChunk], g[kChunk], beta[kChunk];  // g: its running sum
};
static_assert(sizeof(bf16[2][kChunk * kSquare]) >= sizeof(bf16[kChunk * kWide]));

// One chunk of one value head: u, w [64, 128], p [64, 64] and sums [64], the running sums of g, at
// index (chunk, head).
__global__ void __launch_bounds__(kWithinThreads)
    gdn_within_kernel(DeviceBatch batch, GdnShape shape, const bf16 *q, const bf16 *k,
                      const bf16 *v, const float *g, const float *beta, bf16 *u, bf16 *w, bf16 *p,
                      float *sums) {
  extern __shared__ __align__(16) unsigned char memory[];
  WithinShared &shared = *reinterpret_cast<WithinShared *>(memory);
  const QueryTile tile = batch.tiles_all[blockIdx.x];
  const uint32_t head = blockIdx.y;
  const uint32_t key_head = head / (shape.value_heads / shape.key_heads);
  const uint32_t key_stride = shape.key_heads * kDim, value_stride = shape.value_heads * kDim;
  const uint64_t item = uint64_t{blockIdx.x} * shape.value_heads + head;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  load_rows<kWithinThreads>(shared.k, k + uint64_t{tile.row} * key_stride + key_head * kDim,
                            key_stride, tile.count);
  load_rows<kWithinThreads>(shared.q, q + uint64_t{tile.row} * key_stride + key_head * kDim,
                            key_stride, tile.count);
  commit_async();
  load_rows<kWithinThreads>(shared.v, v + uint64_t{tile.row} * value_stride + head * kDim,
                            value_stride, tile.count);
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
#pragma unroll 2
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
  if (threadIdx.x < kChunk) sums[item * kChunk + threadIdx.x] = shared.g[threadIdx.x];
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
        shared.a[i * kSolve + j + c] =
            j + c < i ? shared.beta[i] * decay * kk[n][2 * half + c] : 0.0f;
      }
      *reinterpret_cast<uint32_t *>(p + item * kChunk * kChunk + i * kChunk + j) =
          pack(weight[0], weight[1]);
    }
  }
  __syncthreads();  // a is whole, and q has been read

  invert(shared.a);
  {
    const int j = threadIdx.x % 32 * 2;
    const float scale[2] = {shared.beta[j], shared.beta[j + 1]};
    const float decayed[2] = {scale[0] * __expf(shared.g[j]), scale[1] * __expf(shared.g[j + 1])};
#pragma unroll 4
    for (int i = warp; i < kChunk; i += kWithinThreads / 32) {
      const int row_block = i / kBlock, column_block = j / kBlock;
      const float *const from = block_of(shared.a, min(row_block, column_block), row_block) +
                                i % kBlock * kSolve + j % kBlock;
      const float left = j <= i ? from[0] : 0.0f, right = j + 1 <= i ? from[1] : 0.0f;
      const int at = i * kSquare + j;
      *reinterpret_cast<uint32_t *>(shared.t[0] + at) = pack(left * scale[0], right * scale[1]);
      *reinterpret_cast<uint32_t *>(shared.t[1] + at) = pack(left * decayed[0], right * decayed[1]);
    }
  }
  wait_async<0>();
  __syncthreads();

#pragma unroll 1
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
  float sum[kChunk];  // G
};

template <int kStages>
struct AcrossShared {
  AcrossStage stage[kStages];
  bf16 state[kDim * kNarrow];
  bf16 d[2][kChunk * kNarrow];  // d, and d e^(G_64 - G)
};

// Columns [32 x, 32 x + 32) of the state of one value head, through the chunks of one sequence.
// With two stages the next chunk is fetched meanwhile; one is for cards with less shared memory.
// Warps 0 to 3 find d, 16 rows each, while 4 to 7 begin o; every warp keeps 16 keys of the state.
template <int kStages>
__global__ void __launch_bounds__(kAcrossThreads)
    gdn_across_kernel(DeviceBatch batch, uint32_t layer, GdnShape shape, const bf16 *q,
                      const bf16 *k, const float *sums, const bf16 *u, const bf16 *w, const bf16 *p,
                      bf16 *o, const LayerState *capture) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto &shared = *reinterpret_cast<AcrossShared<kStages> *>(memory);
  const uint32_t sequence = blockIdx.z, head = blockIdx.y, column0 = blockIdx.x * kColumns;
  const uint32_t key_head = head / (shape.value_heads / shape.key_heads);
  const uint32_t key_stride = shape.key_heads * kDim;
  const uint32_t first = batch.cu_tiles[sequence], last = batch.cu_tiles[sequence + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool makes_d = warp < 4;
  const int row0 = warp % 4 * 16, key0 = warp * 16;

  const auto fetch = [&](AcrossStage &stage, uint32_t chunk) {
    const QueryTile tile = batch.tiles_all[chunk];
    const uint64_t item = uint64_t{chunk} * shape.value_heads + head;
    load_rows<kAcrossThreads>(stage.w, w + item * kChunk * kDim, kDim, kChunk);
    load_rows<kAcrossThreads>(stage.q, q + uint64_t{tile.row} * key_stride + key_head * kDim,
                              key_stride, tile.count);
    load_rows<kAcrossThreads>(stage.k, k + uint64_t{tile.row} * key_stride + key_head * kDim,
                              key_stride, tile.count);
#pragma unroll
    for (uint32_t i = threadIdx.x; i < kChunk * (kChunk / 8); i += kAcrossThreads) {
      const uint32_t row = i / (kChunk / 8), at = i % (kChunk / 8) * 8;
      copy_async(stage.p + row * kSquare + at, p + item * kChunk * kChunk + row * kChunk + at);
    }
    static_assert(kChunk * (kColumns / 8) == kAcrossThreads);
    {
      const uint32_t row = threadIdx.x / (kColumns / 8), at = threadIdx.x % (kColumns / 8) * 8;
      copy_async(stage.u + row * kNarrow + at,
                 u + item * kChunk * kDim + row * kDim + column0 + at);
    }
    if (threadIdx.x < kChunk / 4) {
      copy_async(stage.sum + threadIdx.x * 4, sums + item * kChunk + threadIdx.x * 4);
    }
    commit_async();
  };

  float state[kColumns / 8][4];
  const LayerState *const prefix = batch.prefixes[sequence];
  const auto state_at = [&](float *base, int n, int i) -> float & {
    const uint32_t key = key0 + lane / 4 + i / 2 * 8;
    return base[(uint64_t{head} * kDim + key) * kDim + column0 + n * 8 + lane % 4 * 2 + i % 2];
  };
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      state[n][i] = prefix == nullptr ? 0.0f : state_at(prefix[layer].gdn, n, i);
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
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = key0 + lane / 4 + 8 * half;
        *reinterpret_cast<uint32_t *>(shared.state + key * kNarrow + n * 8 + lane % 4 * 2) =
            pack(state[n][2 * half], state[n][2 * half + 1]);
      }
    }
    wait_async<0>();
    __syncthreads();  // the stage and the state are here; the other stage is free
    if (kStages == 2 && chunk + 1 < last) fetch(shared.stage[(turn + 1) % kStages], chunk + 1);

    // w S, or q S
    const bf16 *const left = makes_d ? stage.w : stage.q;
    float out[kColumns / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t a[4];
      Operand<kWide>::a(a, left, row0, d);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t b[4];
        Operand<kNarrow>::b(b, shared.state, d, n * 16);
        multiply(out[2 * n], a, b[0], b[1]);
        multiply(out[2 * n + 1], a, b[2], b[3]);
      }
    }
    const float total = stage.sum[kChunk - 1];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row0 + lane / 4 + 8 * half;
      const float scale = __expf(makes_d ? total - stage.sum[i] : stage.sum[i]);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        if (makes_d) {
          const int at = i * kNarrow + n * 8 + lane % 4 * 2;
          const float2 u_at =
              __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(stage.u + at));
          const float low = u_at.x - out[n][2 * half], high = u_at.y - out[n][2 * half + 1];
          *reinterpret_cast<uint32_t *>(shared.d[0] + at) = pack(low, high);
          *reinterpret_cast<uint32_t *>(shared.d[1] + at) = pack(low * scale, high * scale);
        } else {
          out[n][2 * half] *= scale;
          out[n][2 * half + 1] *= scale;
        }
      }
    }
    const float decay = __expf(total);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state[n][i] *= decay;
    }
    __syncthreads();  // d is whole

#pragma unroll
    for (int j = 0; j < kChunk; j += 16) {
      uint32_t a[4];
      Operand<kWide>::a_transposed(a, stage.k, key0, j);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t b[4];
        Operand<kNarrow>::b(b, shared.d[1], j, n * 16);
        multiply(state[2 * n], a, b[0], b[1]);
        multiply(state[2 * n + 1], a, b[2], b[3]);
      }
    }
    if (makes_d) continue;
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
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state_at(capture[layer].gdn, n, i) = state[n][i];
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
                  (heads + kHeadsOfBlock - 1) / kHeadsOfBlock + 1);
  gdn_prepare_kernel<<<grid, kHeadsOfBlock * 32, 0, stream>>>(
      batch, layer, shape, projected, conv, a_log, dt_bias, q, k, v, g, beta, capture);
}

uint64_t gdn_scan_elements(uint32_t chunks, uint32_t value_heads) {
  return uint64_t{chunks} * value_heads *
         (2 * kChunk * kDim + kChunk * kChunk + kChunk * sizeof(float) / sizeof(bf16));
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
  float *const sums = reinterpret_cast<float *>(p + items * kChunk * kChunk);
  gdn_within_kernel<<<dim3(batch.tile_count, shape.value_heads), kWithinThreads,
                      sizeof(WithinShared), stream>>>(batch, shape, q, k, v, g, beta, u, w, p,
                                                      sums);
  const dim3 grid(kDim / kColumns, shape.value_heads, batch.sequences);
  if (two_stages(shared_bytes)) {
    gdn_across_kernel<2><<<grid, kAcrossThreads, sizeof(AcrossShared<2>), stream>>>(
        batch, layer, shape, q, k, sums, u, w, p, o, capture);
  } else {
    gdn_across_kernel<1><<<grid, kAcrossThreads, sizeof(AcrossShared<1>), stream>>>(
        batch, layer, shape, q, k, sums, u, w, p, o, capture);
  }
}

}  // namespace cua::backend::cuda
