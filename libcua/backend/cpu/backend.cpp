// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <string>

#include "error.h"

namespace cua::backend::cpu {

// ---- scratch ---------------------------------------------------------------------------------

// A stack of blocks that are never moved and kept for the next pass.
template <class Real>
class Backend<Real>::Arena {
 public:
  Arena() = default;
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;
  ~Arena() {
    for (const Block &block : blocks_) {
      ::operator delete (block.data, std::align_val_t{kAlignment});
    }
  }

  Real *take(size_t elements) {
    const size_t bytes = (elements * sizeof(Real) + kAlignment - 1) / kAlignment * kAlignment;
    while (block_ < blocks_.size() && blocks_[block_].bytes - used_ < bytes) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) {
      const size_t size = std::max(bytes, kSmallestBlock);
      blocks_.reserve(blocks_.size() + 1);
      void *const data = ::operator new (size, std::align_val_t{kAlignment});
      blocks_.push_back({static_cast<std::byte *>(data), size});
      bytes_ += size;
      used_ = 0;
    }
    std::byte *const at = blocks_[block_].data + used_;
    used_ += bytes;
    return reinterpret_cast<Real *>(at);
  }

  size_t block_ = 0, used_ = 0;  // the top of the stack
  size_t bytes_ = 0;

 private:
  static constexpr size_t kSmallestBlock = size_t{4} << 20;
  struct Block {
    std::byte *data;
    size_t bytes;
  };
  std::vector<Block> blocks_;
};

template <class Real>
Backend<Real>::Scope::Scope(Arena &arena)
    : arena_(arena), block_(arena.block_), used_(arena.used_) {}

template <class Real>
Backend<Real>::Scope::~Scope() {
  arena_.block_ = block_;
  arena_.used_ = used_;
}

template <class Real>
auto Backend<Real>::scratch() -> Scope {
  return Scope(*arena_);
}

template <class Real>
auto Backend<Real>::tensor(size_t rows, size_t cols) -> Tensor {
  return {arena_->take(rows * cols), rows, cols, cols};
}

template <class Real>
size_t Backend<Real>::scratch_bytes() const {
  return arena_->bytes_ + 2 * cosine_.size() * sizeof(Real);
}

namespace {
constexpr size_t kMostTaps = 16;
}  // namespace

// ---- loading ---------------------------------------------------------------------------------

template <class Real>
Backend<Real>::Backend(const Dimensions &dimensions, size_t threads, const Kernels<Real> &kernels)
    : dimensions_(dimensions),
      kernels_(kernels),
      pool_(threads),
      arena_(std::make_unique<Arena>()) {
  if (dimensions.conv_kernel < 1 || dimensions.conv_kernel > kMostTaps) {
    throw Error(CUA_UNSUPPORTED, "linear_conv_kernel_dim is " +
                                     std::to_string(dimensions.conv_kernel) + "; 1 to " +
                                     std::to_string(kMostTaps) + " are supported");
  }
}

template <class Real>
Backend<Real>::~Backend() = default;

template <class Real>
auto Backend<Real>::matrix(const std::vector<HostTensor> &stack) const -> Matrix {
  Matrix matrix;
  matrix.parts = stack;
  matrix.cols = stack.front().shape.at(1);
  for (const HostTensor &part : stack) matrix.rows += part.shape.at(0);
  return matrix;
}

template <class Real>
auto Backend<Real>::vector(const HostTensor &tensor) const -> Vector {
  Vector vector(tensor.elements());
  kernels_.widen({tensor.data, tensor.dtype}, vector.size(), vector.data());
  return vector;
}

template <class Real>
WeightRow Backend<Real>::Matrix::row(size_t row) const {
  const HostTensor *part = parts.data();
  for (; row >= part->shape[0]; ++part) row -= part->shape[0];
  return {part->data + row * cols * size_of(part->dtype), part->dtype};
}

template <class Real>
auto Backend<Real>::Matrix::slice(size_t begin, size_t count) const -> Matrix {
  Matrix slice;
  slice.rows = count;
  slice.cols = cols;
  for (HostTensor part : parts) {
    const size_t skip = std::min<size_t>(begin, part.shape[0]);
    part.data += skip * cols * size_of(part.dtype);
    part.shape[0] = std::min<size_t>(part.shape[0] - skip, count);
    begin -= skip;
    count -= part.shape[0];
    if (part.shape[0] != 0) slice.parts.push_back(std::move(part));
  }
  return slice;
}

// ---- the pass --------------------------------------------------------------------------------

template <class Real>
auto Backend<Real>::begin(const Batch &batch) -> Scope {
  size_t positions = 0;
  for (size_t s = 0; s < batch.sequences(); ++s) {
    const size_t before = batch.prefix(s) != nullptr ? batch.prefix(s)->tokens : 0;
    positions = std::max(positions, before + batch.end(s) - batch.begin(s));
    if (batch.capture != nullptr) {
      batch.capture->tokens = before + batch.end(s) - batch.begin(s);
      batch.capture->layers.resize(dimensions_.gdn_layers.size());
    }
  }
  extend_rotary(positions);
  return Scope(*arena_);
}

template <class Real>
void Backend<Real>::extend_rotary(size_t positions) {
  if (positions <= positions_) return;
  const size_t half = dimensions_.rotary_dim / 2;
  cosine_.resize(positions * half);
  sine_.resize(positions * half);
  for (; positions_ < positions; ++positions_) {
    for (size_t j = 0; j < half; ++j) {
      const double angle =
          static_cast<double>(positions_) *
          std::pow(dimensions_.rope_theta,
                   -2.0 * static_cast<double>(j) / static_cast<double>(dimensions_.rotary_dim));
      cosine_[positions_ * half + j] = static_cast<Real>(std::cos(angle));
      sine_[positions_ * half + j] = static_cast<Real>(std::sin(angle));
    }
  }
}

template <class Real>
void Backend<Real>::embed(const Batch &batch, const Matrix &embedding, const Tensor &x) {
  for (size_t t = 0; t < batch.rows(); ++t) {
    kernels_.widen(embedding.row(batch.ids[t]), embedding.cols, x.row(t));
  }
}

template <class Real>
void Backend<Real>::rms_norm(const Tensor &x, const Vector &w, const Tensor &y) {
  const Real eps = static_cast<Real>(dimensions_.rms_norm_eps);
  pool_.run(x.rows, [&](size_t t, size_t) {
    kernels_.rms_norm(x.row(t), w.data(), 1, x.cols, eps, y.row(t));
  });
}

template <class Real>
void Backend<Real>::linear(const Tensor &x, const Matrix &w, const Tensor &y, bool add) {
  const Scope scope = scratch();
  const size_t most = std::min(x.rows, kTokenBlock);
  Real *const packed = arena_->take(kernels_.packed_size(most, w.cols));
  Real *const workspaces = arena_->take(pool_.threads() * kernels_.linear_workspace);
  for (size_t t0 = 0; t0 < x.rows; t0 += kTokenBlock) {
    const size_t tokens = std::min(x.rows - t0, kTokenBlock);
    pool_.run(kernels_.panels(tokens), [&](size_t panel, size_t) {
      kernels_.pack_panel(x.row(t0), x.stride, tokens, w.cols, panel, packed);
    });
    pool_.run((w.rows + kOutputBlock - 1) / kOutputBlock, [&](size_t item, size_t thread) {
      const size_t n0 = item * kOutputBlock;
      LinearBlock<Real> block;
      block.outputs = std::min(kOutputBlock, w.rows - n0);
      for (size_t n = 0; n < block.outputs; ++n) {
        block.weights[n] = w.row(n0 + n);
      }
      block.depth = w.cols;
      block.packed = packed;
      block.tokens = tokens;
      block.y = y.row(t0) + n0;
      block.y_stride = y.stride;
      block.add = add;
      block.workspace = workspaces + thread * kernels_.linear_workspace;
      kernels_.linear_block(block);
    });
  }
}

template <class Real>
void Backend<Real>::gather_last(const Batch &batch, const Tensor &all, const Tensor &last) {
  for (size_t s = 0; s < batch.sequences(); ++s) {
    std::memcpy(last.row(s), all.row(batch.last(s)), all.cols * sizeof(Real));
  }
}

// ---- Gated DeltaNet --------------------------------------------------------------------------

namespace {

template <class Real>
Real softplus(Real x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

// The sequence that holds a row.
template <class Batch>
size_t sequence_of(const Batch &batch, size_t row) {
  const auto after = std::upper_bound(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), row);
  return static_cast<size_t>(after - batch.cu_seqlens.begin()) - 1;
}

}  // namespace

template <class Real>
void Backend<Real>::gdn_prepare(const Batch &batch, size_t layer, const Tensor &projected,
                                const Vector &conv, const Vector &a_log, const Vector &dt_bias,
                                const Tensor &q, const Tensor &k, const Tensor &v, const Gates &g,
                                const Gates &beta) {
  const Dimensions &d = dimensions_;
  const size_t taps = d.conv_kernel, channels = 2 * q.cols + v.cols;
  const Tensor mixed = tensor(batch.rows(), channels);
  const size_t b_column = channels + v.cols, a_column = b_column + d.gdn_value_heads;
  const Real q_scale = 1 / std::sqrt(static_cast<Real>(d.gdn_key_dim));

  // Row `row` of the convolution's input, counted from the sequence's first row; rows before it
  // come from the prefix, and are nullptr (zeros) where there is none.
  const auto input = [&](size_t sequence, ptrdiff_t row) -> const Real * {
    if (row >= 0) return projected.row(batch.begin(sequence) + static_cast<size_t>(row));
    const State *const prefix = batch.prefix(sequence);
    if (prefix == nullptr) return nullptr;
    const ptrdiff_t tail = static_cast<ptrdiff_t>(taps) - 1 + row;
    return prefix->layers[layer].conv_tail.data() + static_cast<size_t>(tail) * channels;
  };

  pool_.run(batch.rows(), [&](size_t t, size_t) {
    const size_t sequence = sequence_of(batch, t);
    std::array<const Real *, kMostTaps> window;
    for (size_t j = 0; j < taps; ++j) {
      window[j] = input(sequence, static_cast<ptrdiff_t>(t - batch.begin(sequence) + j) -
                                      static_cast<ptrdiff_t>(taps - 1));
    }
    kernels_.conv_silu(window.data(), conv.data(), taps, channels, mixed.row(t));
    std::memcpy(q.row(t), mixed.row(t), q.cols * sizeof(Real));
    std::memcpy(k.row(t), mixed.row(t) + q.cols, k.cols * sizeof(Real));
    std::memcpy(v.row(t), mixed.row(t) + q.cols + k.cols, v.cols * sizeof(Real));
    for (size_t head = 0; head < d.gdn_key_heads; ++head) {
      kernels_.l2_norm(q.row(t) + head * d.gdn_key_dim, d.gdn_key_dim, q_scale);
      kernels_.l2_norm(k.row(t) + head * d.gdn_key_dim, d.gdn_key_dim, 1);
    }
    for (size_t head = 0; head < d.gdn_value_heads; ++head) {
      const Real b = projected.row(t)[b_column + head], a = projected.row(t)[a_column + head];
      beta.row(t)[head] = 1 / (1 + std::exp(-b));
      g.row(t)[head] = -std::exp(a_log[head]) * softplus(a + dt_bias[head]);
    }
  });

  if (batch.capture != nullptr) {
    std::vector<Real> &tail = batch.capture->layers[layer].conv_tail;
    tail.assign((taps - 1) * channels, 0);
    for (size_t j = 0; j + 1 < taps; ++j) {
      const Real *const row =
          input(0, static_cast<ptrdiff_t>(batch.rows() + j) - static_cast<ptrdiff_t>(taps - 1));
      if (row != nullptr) std::memcpy(&tail[j * channels], row, channels * sizeof(Real));
    }
  }
}

template <class Real>
void Backend<Real>::gdn_scan(const Batch &batch, size_t layer, const Tensor &q, const Tensor &k,
                             const Tensor &v, const Gates &g, const Gates &beta, const Tensor &o) {
  const Dimensions &d = dimensions_;
  const size_t state_size = size_t{d.gdn_key_dim} * d.gdn_value_dim;
  const size_t group = d.gdn_value_heads / d.gdn_key_heads;
  const size_t width = d.gdn_value_dim % 64 == 0 ? 64 : d.gdn_value_dim;  // columns of an item
  const size_t parts = d.gdn_value_dim / width;
  Real *const states = arena_->take(pool_.threads() * state_size);
  Real *const workspaces = arena_->take(pool_.threads() * state_size);
  if (batch.capture != nullptr) {
    batch.capture->layers[layer].gdn.resize(d.gdn_value_heads * state_size);
  }
  const size_t items = d.gdn_value_heads * parts;
  pool_.run(batch.sequences() * items, [&](size_t item, size_t thread) {
    const size_t sequence = item / items, head = item % items / parts;
    const size_t column = item % parts * width, first = batch.begin(sequence);
    Real *const state = states + thread * state_size;  // [Dk, width]
    const State *const prefix = batch.prefix(sequence);
    for (size_t i = 0; i < d.gdn_key_dim; ++i) {
      for (size_t c = 0; c < width; ++c) {
        state[i * width + c] =
            prefix == nullptr
                ? 0
                : prefix->layers[layer].gdn[head * state_size + i * d.gdn_value_dim + column + c];
      }
    }
    GdnScan<Real> scan;
    scan.q = q.row(first) + head / group * d.gdn_key_dim;
    scan.k = k.row(first) + head / group * d.gdn_key_dim;
    scan.v = v.row(first) + head * d.gdn_value_dim + column;
    scan.g = g.row(first) + head;
    scan.beta = beta.row(first) + head;
    scan.o = o.row(first) + head * d.gdn_value_dim + column;
    scan.rows = batch.end(sequence) - first;
    scan.key_dim = d.gdn_key_dim;
    scan.width = width;
    scan.qk_stride = q.stride;
    scan.v_stride = v.stride;
    scan.gate_stride = g.stride;
    scan.state = state;
    scan.state_stride = width;
    scan.workspace = workspaces + thread * state_size;
    kernels_.gdn_scan(scan);
    if (batch.capture != nullptr) {
      Real *const to = batch.capture->layers[layer].gdn.data() + head * state_size;
      for (size_t i = 0; i < d.gdn_key_dim; ++i) {
        std::memcpy(to + i * d.gdn_value_dim + column, state + i * width, width * sizeof(Real));
      }
    }
  });
}

template <class Real>
void Backend<Real>::gated_norm(const Tensor &x, const Tensor &z, const Vector &w, const Tensor &y) {
  const Real eps = static_cast<Real>(dimensions_.rms_norm_eps);
  const size_t dim = dimensions_.gdn_value_dim;
  pool_.run(x.rows, [&](size_t t, size_t) {
    for (size_t column = 0; column < x.cols; column += dim) {
      Real *const to = y.row(t) + column;
      kernels_.rms_norm(x.row(t) + column, w.data(), 0, dim, eps, to);
      kernels_.silu_mul(z.row(t) + column, to, dim, to);
    }
  });
}

// ---- attention and MLP -----------------------------------------------------------------------

template <class Real>
auto Backend<Real>::queries(const Batch &batch, Rows rows) const -> std::vector<Query> {
  std::vector<Query> queries;
  for (size_t s = 0; s < batch.sequences(); ++s) {
    const size_t before = batch.prefix(s) != nullptr ? batch.prefix(s)->tokens : 0;
    const size_t end = rows == Rows::all ? batch.end(s) : batch.last(s) + 1;
    for (size_t t = rows == Rows::all ? batch.begin(s) : batch.last(s); t < end; ++t) {
      queries.push_back({s, t, before + t - batch.begin(s)});
    }
  }
  return queries;
}

template <class Real>
void Backend<Real>::rotate(Real *head, size_t position) const {
  const size_t half = dimensions_.rotary_dim / 2;
  kernels_.rotate(head, cosine_.data() + position * half, sine_.data() + position * half, half);
}

template <class Real>
void Backend<Real>::attention_prepare(const Batch &batch, size_t layer, Rows rows,
                                      const Tensor &q_gate, const Tensor &kv, const Vector &q_norm,
                                      const Vector &k_norm) {
  const size_t D = dimensions_.head_dim;
  const Real eps = static_cast<Real>(dimensions_.rms_norm_eps);
  const std::vector<Query> q_rows = queries(batch, rows), k_rows = queries(batch, Rows::all);
  pool_.run(q_rows.size(), [&](size_t i, size_t) {
    for (size_t head = 0; head < dimensions_.heads; ++head) {
      Real *const q = q_gate.row(i) + head * 2 * D;
      kernels_.rms_norm(q, q_norm.data(), 1, D, eps, q);
      rotate(q, q_rows[i].position);
    }
  });
  pool_.run(k_rows.size(), [&](size_t i, size_t) {
    for (size_t head = 0; head < dimensions_.kv_heads; ++head) {
      Real *const k = kv.row(i) + head * D;
      kernels_.rms_norm(k, k_norm.data(), 1, D, eps, k);
      rotate(k, k_rows[i].position);
    }
  });
  if (batch.capture != nullptr) {
    std::vector<Real> &all = batch.capture->layers[layer].kv;
    all.clear();
    if (batch.prefix(0) != nullptr) all = batch.prefix(0)->layers[layer].kv;
    for (size_t t = 0; t < kv.rows; ++t) all.insert(all.end(), kv.row(t), kv.row(t) + kv.cols);
  }
}

template <class Real>
void Backend<Real>::attention(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                              const Tensor &kv, const Tensor &o) {
  const size_t D = dimensions_.head_dim, group = dimensions_.heads / dimensions_.kv_heads;
  const size_t kv_width = size_t{dimensions_.kv_heads} * D;
  const std::vector<Query> q_rows = queries(batch, rows);
  size_t keys = 0;
  for (const Query &query : q_rows) keys = std::max(keys, query.position + 1);
  Real *const scores = arena_->take(pool_.threads() * keys);
  pool_.run(q_rows.size() * dimensions_.heads, [&](size_t item, size_t thread) {
    const size_t i = item / dimensions_.heads, head = item % dimensions_.heads;
    const Query &query = q_rows[i];
    const State *const prefix = batch.prefix(query.sequence);
    AttentionRow<Real> row;
    row.q = q_gate.row(i) + head * 2 * D;
    row.gate = row.q + D;
    row.keys[0] = prefix != nullptr ? prefix->tokens : 0;
    row.keys[1] = query.position + 1 - row.keys[0];
    const Real *const before = prefix != nullptr ? prefix->layers[layer].kv.data() : nullptr;
    row.k[0] = before != nullptr ? before + head / group * D : nullptr;
    row.k[1] = kv.row(batch.begin(query.sequence)) + head / group * D;
    row.kv_stride[0] = 2 * kv_width;
    row.kv_stride[1] = kv.stride;
    for (size_t part = 0; part < 2; ++part) {
      row.v[part] = row.k[part] != nullptr ? row.k[part] + kv_width : nullptr;
    }
    row.head_dim = D;
    row.scale = 1 / std::sqrt(static_cast<Real>(D));
    row.scores = scores + thread * keys;
    row.out = o.row(i) + head * D;
    kernels_.attention_row(row);
  });
}

template <class Real>
void Backend<Real>::silu_mul(const Tensor &gate_up, const Tensor &y) {
  pool_.run(y.rows, [&](size_t t, size_t) {
    kernels_.silu_mul(gate_up.row(t), gate_up.row(t) + y.cols, y.cols, y.row(t));
  });
}

template <class Real>
void Backend<Real>::readout(const Tensor &x, const Matrix &embedding,
                            const std::array<uint32_t, 26> &letters, float *logits, float *hidden) {
  std::vector<Real> letter(x.cols);
  for (size_t i = 0; i < letters.size(); ++i) {
    kernels_.widen(embedding.row(letters[i]), x.cols, letter.data());
    for (size_t s = 0; s < x.rows; ++s) {
      logits[s * letters.size() + i] =
          static_cast<float>(kernels_.dot(x.row(s), letter.data(), x.cols));
    }
  }
  if (hidden != nullptr) {
    for (size_t s = 0; s < x.rows; ++s) {
      for (size_t i = 0; i < x.cols; ++i) *hidden++ = static_cast<float>(x.row(s)[i]);
    }
  }
}

template class Backend<float>;
template class Backend<double>;

}  // namespace cua::backend::cpu
