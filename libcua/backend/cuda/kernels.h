// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the CUDA backend: every launch, with the shape of every pointer.
// All run on `stream`, allocate nothing and never synchronise. bf16 is __nv_bfloat16.
// A launch error is left for the caller to fetch.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace cua::backend::cuda {

using bf16 = __nv_bfloat16;

// What a sequence leaves behind in one layer, in device memory.
struct LayerState {
  bf16 *kv;         // attention: [tokens, 2 Hkv D], k then v, normed and rotated
  bf16 *conv_tail;  // GDN: [3, channels], the last inputs of the convolution
  float *gdn;       // GDN: [Hv, Dk, Dv]
};

// Up to 64 rows of one sequence: a work item of attention, a chunk of GDN.
struct QueryTile {
  uint32_t sequence;
  uint32_t row;       // first row of q
  uint32_t count;     // query rows
  uint32_t position;  // of the first, counted from the start of the whole prompt
};

// The batch as the kernels see it, in device memory.
struct DeviceBatch {
  const uint32_t *ids;                // [T]
  const uint32_t *cu_seqlens;         // [B + 1]
  const uint32_t *last_rows;          // [B], the row of each sequence that is read out
  const uint32_t *row_sequence;       // [T]
  const uint32_t *prefix_tokens;      // [B], a multiple of 64
  const LayerState *const *prefixes;  // [B], [layers] or nullptr
  const QueryTile *tiles_all;         // tiles over every row
  const uint32_t *cu_tiles;           // [B + 1], of tiles_all
  const QueryTile *tiles_last;        // [B], one query each
  uint32_t rows, sequences, tile_count;
};

// x[T, H] = embedding[ids]
void embed(const DeviceBatch &batch, const bf16 *embedding, uint32_t hidden, bf16 *x,
           cudaStream_t stream);
// last[b] = all[last_rows[b]]; rows of `cols` with stride all_stride
void gather_last(const DeviceBatch &batch, const bf16 *all, uint32_t all_stride, uint32_t cols,
                 bf16 *last, cudaStream_t stream);
// y = x * rsqrt(mean(x^2) + eps) * (1 + w); x, y [rows, H], w [H]
void rms_norm(const bf16 *x, const float *w, uint32_t rows, uint32_t hidden, float eps, bf16 *y,
              cudaStream_t stream);
// y = silu(gate) * up; gate_up [rows, 2 I], y [rows, I]
void silu_mul(const bf16 *gate_up, uint32_t rows, uint32_t intermediate, bf16 *y,
              cudaStream_t stream);
// logits [B, 26] = x [B, H] times the letters' rows of the embedding
void readout(const bf16 *x, const bf16 *embedding, const uint32_t *letters, uint32_t sequences,
             uint32_t hidden, float *logits, cudaStream_t stream);

// For trials of matrix products: values in [-1, 1) that depend on nothing but their place and the
// seed; and how many of n differ in their bits, at `differences`.
void fill_random(bf16 *values, uint64_t n, uint32_t seed, cudaStream_t stream);
void count_differences(const bf16 *a, const bf16 *b, uint64_t n, uint32_t *differences,
                       cudaStream_t stream);

// Gated DeltaNet; head dims 128, 4 taps. projected [T, stride] holds q | k | v | z | b | a.
struct GdnShape {
  uint32_t key_heads, value_heads;  // Hk, Hv
  uint32_t stride;                  // of a row of projected
};
// conv [channels, 4]; q, k [T, Hk 128]; v [T, Hv 128]; g, beta [T, Hv]; capture: may be nullptr
void gdn_prepare(const DeviceBatch &batch, uint32_t layer, const GdnShape &shape,
                 const bf16 *projected, const float *conv, const float *a_log, const float *dt_bias,
                 bf16 *q, bf16 *k, bf16 *v, float *g, float *beta, const LayerState *capture,
                 cudaStream_t stream);
// o [T, Hv 128]; workspace of gdn_scan_elements; shared_bytes: that a block of the device can have
void gdn_scan(const DeviceBatch &batch, uint32_t layer, const GdnShape &shape, const bf16 *q,
              const bf16 *k, const bf16 *v, const float *g, const float *beta, bf16 *workspace,
              bf16 *o, const LayerState *capture, int shared_bytes, cudaStream_t stream);
// chunks: DeviceBatch::tile_count
uint64_t gdn_scan_elements(uint32_t chunks, uint32_t value_heads);
// Once a device before the first gdn_scan: its shared memory is above the default limit.
cudaError_t allow_gdn_scan(int shared_bytes);
// y = x * rsqrt(mean(x^2) + eps) * w * silu(z), by head; x, y [rows, Hv 128], z of row stride
// z_stride, w [128]; y may be x
void gated_norm(const bf16 *x, const bf16 *z, uint32_t z_stride, const float *w, uint32_t rows,
                uint32_t value_heads, float eps, bf16 *y, cudaStream_t stream);

// Attention; head_dim 256, the first 64 dimensions rotated.
struct AttentionShape {
  uint32_t heads, kv_heads;      // Hq, Hkv
  uint32_t q_stride, kv_stride;  // of rows of q_gate and kv
};
// In place; rotary [positions, cos 32 | sin 32], rounded to bf16. q_gate [rows, Hq (256 | 256)]
// over every row or, where `last`, over the last one of each sequence; kv [T, Hkv 256 | Hkv 256];
// capture: LayerState::kv or nullptr
void attention_prepare(const DeviceBatch &batch, bool last, const AttentionShape &shape,
                       bf16 *q_gate, bf16 *kv, const float *q_norm, const float *k_norm,
                       const float *rotary, float eps, bf16 *capture, cudaStream_t stream);
// Once a device before the first attention: its shared memory is above the default limit.
cudaError_t allow_attention();
// o [rows, Hq 256] = softmax(q k^T / 16, causal) v * sigmoid(gate)
void attention(const DeviceBatch &batch, const QueryTile *tiles, uint32_t tile_count,
               uint32_t layer, const AttentionShape &shape, const bf16 *q_gate, const bf16 *kv,
               bf16 *o, cudaStream_t stream);

}  // namespace cua::backend::cuda
