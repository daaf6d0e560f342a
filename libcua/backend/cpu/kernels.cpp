// SPDX-License-Identifier: Apache-2.0
//
// Compiled once for each instruction set, with CUA_ISA naming the namespace. Nothing with external
// linkage may be instantiated here but what lives in that namespace: the linker keeps one copy of
// an inline function, and it must not be the one with instructions that another processor lacks.
#include "backend/cpu/kernels.h"

#include <math.h>
#include <string.h>

namespace cua::backend::cpu::CUA_ISA {
namespace {

inline float exponential(float x) { return expf(x); }
inline double exponential(double x) { return exp(x); }
inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }

template <class Real>
inline Real sigmoid(Real x) {
  return 1 / (1 + exponential(-x));
}
template <class Real>
inline Real silu(Real x) {
  return x / (1 + exponential(-x));
}

// ---- linear ----------------------------------------------------------------------------------
// Tokens lie across the lanes of a vector and each weight is broadcast, so that an output is one
// chain of multiply-adds over the inputs, whatever the number of tokens beside it.

template <class Real>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(CUA_VECTOR_BYTES)));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(CUA_VECTOR_BYTES)));
};
template <class Real>
using Vector = typename VectorOf<Real>::type;
template <class Real>
constexpr size_t kLanes = CUA_VECTOR_BYTES / sizeof(Real);

constexpr size_t kTileVectors = 3;  // of tokens, in a tile of registers
constexpr size_t kTileOutputs = CUA_TILE_OUTPUTS;
static_assert(kOutputBlock % kTileOutputs == 0);

// Token vectors of panel `panel` of `vectors`: threes, and at the end 2 + 2 rather than 3 + 1.
inline size_t panel_width(size_t vectors, size_t panel) {
  const size_t begin = panel * kTileVectors;
  const size_t left = vectors - begin;
  if (vectors % kTileVectors == 1 && vectors > kTileVectors) {
    if (left == kTileVectors + 1) return 2;
    if (left < kTileVectors) return 2;
  }
  return left < kTileVectors ? left : kTileVectors;
}

// First token vector of a panel.
inline size_t panel_begin(size_t vectors, size_t panel) {
  const size_t begin = panel * kTileVectors;
  const bool second_of_two =
      vectors % kTileVectors == 1 && vectors > kTileVectors && vectors - begin < kTileVectors;
  return second_of_two ? vectors - 2 : begin;
}

template <class Real>
size_t vectors_of(size_t tokens) {
  return (tokens + kLanes<Real> - 1) / kLanes<Real>;
}

template <class Real>
size_t panels(size_t tokens) {
  return (vectors_of<Real>(tokens) + kTileVectors - 1) / kTileVectors;
}

template <class Real>
size_t packed_size(size_t tokens, size_t depth) {
  return vectors_of<Real>(tokens) * kLanes<Real> * depth;
}

// Writes tokens of one panel as [depth, panel's tokens], zeros where there is no token.
template <class Real>
void pack_panel(const Real *x, size_t stride, size_t tokens, size_t depth, size_t panel,
                Real *packed) {
  const size_t vectors = vectors_of<Real>(tokens);
  const size_t first = panel_begin(vectors, panel) * kLanes<Real>;
  const size_t width = panel_width(vectors, panel) * kLanes<Real>;
  Real *const to = packed + first * depth;
  constexpr size_t kBlock = 64 / sizeof(Real);  // of inputs: a cache line of x
  for (size_t k0 = 0; k0 < depth; k0 += kBlock) {
    const size_t k1 = k0 + kBlock < depth ? k0 + kBlock : depth;
    for (size_t t = 0; t < width; ++t) {
      if (first + t < tokens) {
        const Real *const from = x + (first + t) * stride;
        for (size_t k = k0; k < k1; ++k) to[k * width + t] = from[k];
      } else {
        for (size_t k = k0; k < k1; ++k) to[k * width + t] = 0;
      }
    }
  }
}

template <class Real>
void widen(WeightRow from, size_t n, Real *to) {
  if (from.dtype == Dtype::bf16) {
    for (size_t i = 0; i < n; ++i) {
      uint16_t half;
      __builtin_memcpy(&half, from.data + 2 * i, 2);
      const uint32_t bits = uint32_t{half} << 16;
      float value;
      __builtin_memcpy(&value, &bits, 4);
      to[i] = value;
    }
  } else {
    for (size_t i = 0; i < n; ++i) {
      float value;
      __builtin_memcpy(&value, from.data + 4 * i, 4);
      to[i] = value;
    }
  }
}

// c[outputs, tokens] (+)= w[outputs, depth] * x[depth, tokens], for kTileOutputs outputs and
// kWidth token vectors.
template <class Real, size_t kWidth>
inline void tile(const Real *w, const Real *x, size_t depth, Real *c, size_t c_stride, bool first) {
  Vector<Real> sum[kTileOutputs][kWidth];
#pragma GCC unroll 16
  for (size_t r = 0; r < kTileOutputs; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kWidth; ++v) sum[r][v] = Vector<Real>{};
  }
  for (size_t k = 0; k < depth; ++k) {
    Vector<Real> in[kWidth];
#pragma GCC unroll 4
    for (size_t v = 0; v < kWidth; ++v) {
      in[v] = *reinterpret_cast<const Vector<Real> *>(x + (k * kWidth + v) * kLanes<Real>);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < kTileOutputs; ++r) {
      const Real weight = w[r * kDepthBlock + k];
#pragma GCC unroll 4
      for (size_t v = 0; v < kWidth; ++v) sum[r][v] += weight * in[v];
    }
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < kTileOutputs; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kWidth; ++v) {
      Vector<Real> *const to =
          reinterpret_cast<Vector<Real> *>(c + r * c_stride + v * kLanes<Real>);
      *to = first ? sum[r][v] : *to + sum[r][v];
    }
  }
}

template <class Real>
constexpr size_t kWorkspace = kTileOutputs *kDepthBlock + kOutputBlock *kTokenBlock;

template <class Real>
void linear_block(const LinearBlock<Real> &b) {
  Real *const wide = b.workspace;                            // [kTileOutputs, kDepthBlock]
  Real *const c = b.workspace + kTileOutputs * kDepthBlock;  // [kOutputBlock, tokens padded]
  const size_t vectors = vectors_of<Real>(b.tokens);
  const size_t c_stride = vectors * kLanes<Real>;
  const size_t panel_count = panels<Real>(b.tokens);
  for (size_t k0 = 0; k0 < b.depth; k0 += kDepthBlock) {
    const size_t depth = k0 + kDepthBlock < b.depth ? kDepthBlock : b.depth - k0;
    for (size_t n0 = 0; n0 < b.outputs; n0 += kTileOutputs) {
      for (size_t r = 0; r < kTileOutputs; ++r) {
        Real *const row = wide + r * kDepthBlock;
        if (n0 + r < b.outputs) {
          const WeightRow weights = b.weights[n0 + r];
          const size_t skip = k0 * (weights.dtype == Dtype::bf16 ? 2 : 4);
          widen<Real>({weights.data + skip, weights.dtype}, depth, row);
        } else {
          for (size_t k = 0; k < depth; ++k) row[k] = 0;
        }
      }
      for (size_t panel = 0; panel < panel_count; ++panel) {
        const size_t begin = panel_begin(vectors, panel) * kLanes<Real>;
        const size_t width = panel_width(vectors, panel);
        const Real *const x = b.packed + begin * b.depth + k0 * width * kLanes<Real>;
        Real *const to = c + n0 * c_stride + begin;
        switch (width) {
          case 1:
            tile<Real, 1>(wide, x, depth, to, c_stride, k0 == 0);
            break;
          case 2:
            tile<Real, 2>(wide, x, depth, to, c_stride, k0 == 0);
            break;
          default:
            tile<Real, 3>(wide, x, depth, to, c_stride, k0 == 0);
            break;
        }
      }
    }
  }
  for (size_t t = 0; t < b.tokens; ++t) {
    Real *const y = b.y + t * b.y_stride;
    if (b.add) {
      for (size_t n = 0; n < b.outputs; ++n) y[n] += c[n * c_stride + t];
    } else {
      for (size_t n = 0; n < b.outputs; ++n) y[n] = c[n * c_stride + t];
    }
  }
}

// ---- sums and norms --------------------------------------------------------------------------

template <class Real>
inline Real fold(const Real *lanes) {
  Real sum[kDotLanes];
  for (size_t l = 0; l < kDotLanes; ++l) sum[l] = lanes[l];
  for (size_t half = kDotLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) sum[l] += sum[l + half];
  }
  return sum[0];
}

template <class Real>
inline Real dot_inline(const Real *a, const Real *b, size_t n) {
  Real lanes[kDotLanes] = {};
  size_t i = 0;
  for (; i + kDotLanes <= n; i += kDotLanes) {
    for (size_t l = 0; l < kDotLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (size_t l = 0; i + l < n; ++l) lanes[l] += a[i + l] * b[i + l];
  return fold(lanes);
}

template <class Real>
Real dot(const Real *a, const Real *b, size_t n) {
  return dot_inline(a, b, n);
}

template <class Real>
void rms_norm(const Real *x, const Real *w, Real offset, size_t n, Real eps, Real *y) {
  const Real scale = 1 / root(dot_inline(x, x, n) / static_cast<Real>(n) + eps);
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * scale * (offset + w[i]);
}

template <class Real>
void l2_norm(Real *x, size_t n, Real scale) {
  const Real factor = scale / root(dot_inline(x, x, n) + static_cast<Real>(1e-6));
  for (size_t i = 0; i < n; ++i) x[i] *= factor;
}

// ---- Gated DeltaNet --------------------------------------------------------------------------

template <class Real>
void conv_silu(const Real *const *rows, const Real *w, size_t taps, size_t channels, Real *y) {
  for (size_t c = 0; c < channels; ++c) y[c] = 0;
  for (size_t j = 0; j < taps; ++j) {
    const Real *const x = rows[j];
    if (x == nullptr) continue;
    for (size_t c = 0; c < channels; ++c) y[c] += w[c * taps + j] * x[c];
  }
  for (size_t c = 0; c < channels; ++c) y[c] = silu(y[c]);
}

template <class Real, size_t kWidth>
void scan_columns(const GdnScan<Real> &s, size_t column) {
  Real *const state = s.workspace;  // [Dk, kWidth]: small enough for the first-level cache
  for (size_t i = 0; i < s.key_dim; ++i) {
    for (size_t c = 0; c < kWidth; ++c) {
      state[i * kWidth + c] = s.state[i * s.state_stride + column + c];
    }
  }
  for (size_t t = 0; t < s.rows; ++t) {
    const Real *const q = s.q + t * s.qk_stride;
    const Real *const k = s.k + t * s.qk_stride;
    const Real *const v = s.v + t * s.v_stride + column;
    Real *const o = s.o + t * s.v_stride + column;
    const Real decay = exponential(s.g[t * s.gate_stride]);
    const Real beta = s.beta[t * s.gate_stride];
    Real recalled[kWidth] = {};  // S^T k
    for (size_t i = 0; i < s.key_dim; ++i) {
      Real *const row = state + i * kWidth;
      const Real key = k[i];
      for (size_t c = 0; c < kWidth; ++c) {
        row[c] *= decay;
        recalled[c] += key * row[c];
      }
    }
    Real delta[kWidth];
    for (size_t c = 0; c < kWidth; ++c) delta[c] = beta * (v[c] - recalled[c]);
    Real out[kWidth] = {};  // S^T q, with the new S
    for (size_t i = 0; i < s.key_dim; ++i) {
      Real *const row = state + i * kWidth;
      const Real key = k[i], query = q[i];
      for (size_t c = 0; c < kWidth; ++c) {
        row[c] += key * delta[c];
        out[c] += query * row[c];
      }
    }
    for (size_t c = 0; c < kWidth; ++c) o[c] = out[c];
  }
  for (size_t i = 0; i < s.key_dim; ++i) {
    for (size_t c = 0; c < kWidth; ++c) {
      s.state[i * s.state_stride + column + c] = state[i * kWidth + c];
    }
  }
}

template <class Real>
void gdn_scan(const GdnScan<Real> &s) {
  size_t column = 0;
  for (; column + 64 <= s.width; column += 64) scan_columns<Real, 64>(s, column);
  for (; column + 16 <= s.width; column += 16) scan_columns<Real, 16>(s, column);
  for (; column < s.width; ++column) scan_columns<Real, 1>(s, column);
}

// ---- attention and MLP -----------------------------------------------------------------------

template <class Real>
void silu_mul(const Real *gate, const Real *up, size_t n, Real *y) {
  for (size_t i = 0; i < n; ++i) y[i] = silu(gate[i]) * up[i];
}

template <class Real>
void rotate(Real *x, const Real *cosine, const Real *sine, size_t half) {
  for (size_t j = 0; j < half; ++j) {
    const Real a = x[j], b = x[j + half];
    x[j] = a * cosine[j] - b * sine[j];
    x[j + half] = b * cosine[j] + a * sine[j];
  }
}

template <class Real>
void attention_row(const AttentionRow<Real> &a) {
  const size_t D = a.head_dim;
  Real *score = a.scores;
  Real largest = -__builtin_inf();
  for (size_t part = 0; part < 2; ++part) {
    for (size_t j = 0; j < a.keys[part]; ++j, ++score) {
      *score = a.scale * dot_inline(a.q, a.k[part] + j * a.kv_stride[part], D);
      if (*score > largest) largest = *score;
    }
  }
  for (size_t d = 0; d < D; ++d) a.out[d] = 0;
  Real total = 0;
  score = a.scores;
  for (size_t part = 0; part < 2; ++part) {
    for (size_t j = 0; j < a.keys[part]; ++j, ++score) {
      const Real weight = exponential(*score - largest);
      total += weight;
      const Real *const v = a.v[part] + j * a.kv_stride[part];
      for (size_t d = 0; d < D; ++d) a.out[d] += weight * v[d];
    }
  }
  for (size_t d = 0; d < D; ++d) a.out[d] = a.out[d] / total * sigmoid(a.gate[d]);
}

}  // namespace

template <class Real>
constexpr Kernels<Real> table{
    CUA_ISA_NAME,       kWorkspace<Real>, packed_size<Real>, panels<Real>,   pack_panel<Real>,
    linear_block<Real>, widen<Real>,      dot<Real>,         rms_norm<Real>, l2_norm<Real>,
    conv_silu<Real>,    gdn_scan<Real>,   silu_mul<Real>,    rotate<Real>,   attention_row<Real>};

extern const Kernels<float> float_kernels;
extern const Kernels<double> double_kernels;
const Kernels<float> float_kernels = table<float>;
const Kernels<double> double_kernels = table<double>;

}  // namespace cua::backend::cpu::CUA_ISA
