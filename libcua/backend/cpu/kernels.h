// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the CPU backend: one row, one head or one block of outputs at a time, on one
// thread. kernels.cpp is compiled once for each instruction set; kernels() picks one at run time.
//
// Every sum is taken in an order fixed by the model's dimensions alone. That is what makes an
// answer independent of batch, place, company, thread count and prefix, bit for bit.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/host_tensor.h"

namespace cua::backend::cpu {

inline constexpr size_t kAlignment = 64;    // bytes, of every buffer
inline constexpr size_t kOutputBlock = 64;  // rows of a weight matrix that one call takes
inline constexpr size_t kTokenBlock = 384;  // rows of x that one packing takes, at most
inline constexpr size_t kDepthBlock = 256;  // inputs summed before adding to the output
inline constexpr size_t kDotLanes = 16;     // partial sums of a dot product

// One row of a weight matrix, where the checkpoint has it; unaligned.
struct WeightRow {
  const std::byte *data;
  Dtype dtype;
};

// A block of at most kOutputBlock rows of a weight matrix times at most kTokenBlock rows of x.
template <class Real>
struct LinearBlock {
  WeightRow weights[kOutputBlock];  // each [depth]
  size_t outputs;                   // rows of W in use
  size_t depth;                     // K
  const Real *packed;               // x as pack_rows leaves it
  size_t tokens;                    // rows of x
  Real *y;                          // [tokens, outputs], row stride y_stride
  size_t y_stride;
  bool add;         // y += instead of y =
  Real *workspace;  // linear_workspace elements, aligned
};

// One query row of one head over the keys of a prefix and of its own sequence.
template <class Real>
struct AttentionRow {
  const Real *q;     // [D]
  const Real *gate;  // [D], before the sigmoid
  const Real *k[2];  // prefix, own; [keys, D] with row stride kv_stride
  const Real *v[2];
  size_t keys[2];
  size_t kv_stride[2];
  size_t head_dim;  // D
  Real scale;
  Real *scores;  // [keys[0] + keys[1]], workspace
  Real *out;     // [D]
};

// Columns [column, column + width) of the state of one value head over a run of rows.
template <class Real>
struct GdnScan {
  const Real *q, *k;  // [rows, Dk], row stride qk_stride; l2-normalised, q scaled
  const Real *v;      // [rows, width], row stride v_stride
  const Real *g;      // [rows], stride gate_stride; log of the decay
  const Real *beta;   // [rows], stride gate_stride
  Real *o;            // [rows, width], row stride v_stride
  size_t rows, key_dim, width;
  size_t qk_stride, v_stride, gate_stride;
  Real *state;  // [Dk, width], row stride state_stride; in and out
  size_t state_stride;
  Real *workspace;  // [Dk, width], aligned
};

template <class Real>
struct Kernels {
  const char *name;  // of the instruction set
  // Elements of LinearBlock::workspace, and of the packed form of x[tokens, depth].
  size_t linear_workspace;
  size_t (*packed_size)(size_t tokens, size_t depth);
  // Panels of pack_rows: panel p covers rows [first, first + count).
  size_t (*panels)(size_t tokens);
  void (*pack_panel)(const Real *x, size_t stride, size_t tokens, size_t depth, size_t panel,
                     Real *packed);
  void (*linear_block)(const LinearBlock<Real> &block);
  void (*widen)(WeightRow from, size_t n, Real *to);
  Real (*dot)(const Real *a, const Real *b, size_t n);
  // y = x * rsqrt(mean(x^2) + eps) * (offset + w); y may be x.
  void (*rms_norm)(const Real *x, const Real *w, Real offset, size_t n, Real eps, Real *y);
  // x * rsqrt(sum(x^2) + 1e-6) * scale, in place.
  void (*l2_norm)(Real *x, size_t n, Real scale);
  // y[c] = silu(sum over taps j of w[c, j] * x_j[c]); rows[j] is nullptr for zeros.
  void (*conv_silu)(const Real *const *rows, const Real *w, size_t taps, size_t channels, Real *y);
  void (*gdn_scan)(const GdnScan<Real> &scan);
  void (*silu_mul)(const Real *gate, const Real *up, size_t n, Real *y);  // silu(gate) * up
  void (*rotate)(Real *x, const Real *cosine, const Real *sine, size_t half);
  void (*attention_row)(const AttentionRow<Real> &row);
};

// The fastest variant that this processor can run.
template <class Real>
const Kernels<Real> &kernels();

// The variant named "x86-64-v2", "x86-64-v3", "x86-64-v4" or "generic"; nullptr where this build
// or this processor lacks it. For tests.
template <class Real>
const Kernels<Real> *kernels_named(const char *name);

}  // namespace cua::backend::cpu
