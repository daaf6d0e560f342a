// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet: the convolution and gates, and the recurrence. Head dimension 128, 4 taps.
#include "backend/cuda/kernels.h"
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

// ---- scan ------------------------------------------------------------------------------------

// A block carries kColumns columns of the state of one value head of one sequence through its rows.
// Eight threads share a column, 16 keys each, in registers.
constexpr int kColumns = 16;
constexpr int kKeyThreads = 8;
constexpr int kKeys = kDim / kKeyThreads;
constexpr int kThreads = kColumns * kKeyThreads;
constexpr int kStage = 16;  // rows staged in shared memory at a time

struct Stage {
  alignas(16) bf16 q[kStage][kDim];
  alignas(16) bf16 k[kStage][kDim];
  alignas(16) bf16 v[kStage][kColumns];
  float decay[kStage], beta[kStage];
};

// The 16 keys of one thread are two runs of 8, 64 apart, so that 8 threads read 128 bytes in a row.
__device__ inline void load_keys(const bf16 *row, uint32_t part, float (&keys)[kKeys]) {
#pragma unroll
  for (int run = 0; run < 2; ++run) {
    float eight[8];
    load8(row + run * 64 + part * 8, eight);
#pragma unroll
    for (int j = 0; j < 8; ++j) keys[run * 8 + j] = eight[j];
  }
}

__global__ void __launch_bounds__(kThreads)
    gdn_scan_kernel(DeviceBatch batch, uint32_t layer, GdnShape shape, const bf16 *q, const bf16 *k,
                    const bf16 *v, const float *g, const float *beta, bf16 *o,
                    const LayerState *capture) {
  __shared__ Stage stages[2];
  const uint32_t sequence = blockIdx.z, head = blockIdx.y, column0 = blockIdx.x * kColumns;
  const uint32_t key_head = head / (shape.value_heads / shape.key_heads);
  const uint32_t column = threadIdx.x / kKeyThreads, part = threadIdx.x % kKeyThreads;
  const uint32_t begin = batch.cu_seqlens[sequence], end = batch.cu_seqlens[sequence + 1];

  float state[kKeys];
  const LayerState *const prefix = batch.prefixes[sequence];
  const auto state_at = [&](float *base, int i) -> float & {
    const uint32_t key = i / 8 * 64 + part * 8 + i % 8;
    return base[(uint64_t{head} * kDim + key) * kDim + column0 + column];
  };
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    state[i] = prefix == nullptr ? 0.0f : state_at(prefix[layer].gdn, i);
  }

  // Each thread copies two 16-byte pieces of q and of k; some one of v and the gates.
  const auto fetch = [&](Stage &stage, uint32_t from) {
    const uint32_t count = min(static_cast<uint32_t>(kStage), end - from);
    for (uint32_t piece = threadIdx.x; piece < kStage * kDim / 8; piece += kThreads) {
      const uint32_t row = piece / (kDim / 8), at = piece % (kDim / 8) * 8;
      if (row >= count) continue;
      const uint64_t source = (uint64_t{from + row} * shape.key_heads + key_head) * kDim + at;
      copy_async(&stage.q[row][at], q + source);
      copy_async(&stage.k[row][at], k + source);
    }
    for (uint32_t piece = threadIdx.x; piece < kStage * kColumns / 8; piece += kThreads) {
      const uint32_t row = piece / (kColumns / 8), at = piece % (kColumns / 8) * 8;
      if (row >= count) continue;
      copy_async(&stage.v[row][at],
                 v + (uint64_t{from + row} * shape.value_heads + head) * kDim + column0 + at);
    }
    if (threadIdx.x < count) {
      const uint64_t gate = uint64_t{from + threadIdx.x} * shape.value_heads + head;
      stage.decay[threadIdx.x] = __expf(g[gate]);
      stage.beta[threadIdx.x] = beta[gate];
    }
    commit_async();
  };

  fetch(stages[0], begin);
  for (uint32_t from = begin, turn = 0; from < end; from += kStage, turn ^= 1) {
    wait_async<0>();
    __syncthreads();  // this stage has landed, and nobody reads the other any more
    if (from + kStage < end) fetch(stages[turn ^ 1], from + kStage);
    const Stage &stage = stages[turn];
    const uint32_t count = min(static_cast<uint32_t>(kStage), end - from);
    for (uint32_t row = 0; row < count; ++row) {
      float keys[kKeys], queries[kKeys];
      load_keys(stage.k[row], part, keys);
      load_keys(stage.q[row], part, queries);
      const float decay = stage.decay[row];
      // S^T k, S^T q with the old S, and k q: all that the new output needs.
      float recalled[2] = {}, seen[2] = {}, kq[2] = {};
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        recalled[i % 2] += state[i] * keys[i];
        seen[i % 2] += state[i] * queries[i];
        kq[i % 2] += keys[i] * queries[i];
      }
      float a = recalled[0] + recalled[1], b = seen[0] + seen[1], c = kq[0] + kq[1];
#pragma unroll
      for (int offset = kKeyThreads / 2; offset > 0; offset /= 2) {
        a += __shfl_xor_sync(0xffffffffu, a, offset);
        b += __shfl_xor_sync(0xffffffffu, b, offset);
        c += __shfl_xor_sync(0xffffffffu, c, offset);
      }
      const float delta = stage.beta[row] * (__bfloat162float(stage.v[row][column]) - decay * a);
#pragma unroll
      for (int i = 0; i < kKeys; ++i) state[i] = decay * state[i] + keys[i] * delta;
      if (part == 0) {
        o[(uint64_t{from + row} * shape.value_heads + head) * kDim + column0 + column] =
            __float2bfloat16_rn(decay * b + c * delta);
      }
    }
  }
  if (capture != nullptr) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) state_at(capture[layer].gdn, i) = state[i];
  }
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

void gdn_scan(const DeviceBatch &batch, uint32_t layer, const GdnShape &shape, const bf16 *q,
              const bf16 *k, const bf16 *v, const float *g, const float *beta, bf16 *o,
              const LayerState *capture, cudaStream_t stream) {
  const dim3 grid(kDim / kColumns, shape.value_heads, batch.sequences);
  gdn_scan_kernel<<<grid, kThreads, 0, stream>>>(batch, layer, shape, q, k, v, g, beta, o, capture);
}

}  // namespace cua::backend::cuda
