// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/backend.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "backend/bf16.h"
#include "backend/blocked_signals.h"
#include "backend/cuda/graph_buckets.h"

namespace cua::backend::cuda {
namespace {

constexpr size_t kAlignment = 256;  // bytes, of every buffer
constexpr size_t kLetters = 26;
constexpr size_t kTile = 64;  // queries of a tile of attention; chunk of a prefix
constexpr size_t kRotary = 64;

constexpr size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Rows of y of a GEMM start at multiples of 16 bytes; the rows added to a matrix are zero.
constexpr size_t padded_rows(size_t rows) { return (rows + 7) / 8 * 8; }

uint32_t narrow(size_t value) { return static_cast<uint32_t>(value); }

}  // namespace

void require_supported(const Dimensions &d) {
  const auto require = [](bool holds, const std::string &what) {
    if (!holds) throw Error(CUA_UNSUPPORTED, what + "; use the CPU library for this model");
  };
  const auto exactly = [&](uint32_t value, uint32_t wanted, const char *name) {
    require(value == wanted, std::string(name) + " is " + std::to_string(value) +
                                 ", the CUDA kernels take " + std::to_string(wanted));
  };
  exactly(d.head_dim, 256, "head_dim");
  exactly(d.rotary_dim, 64, "the rotary dimension (head_dim * partial_rotary_factor)");
  exactly(d.gdn_key_dim, 128, "linear_key_head_dim");
  exactly(d.gdn_value_dim, 128, "linear_value_head_dim");
  exactly(d.conv_kernel, 4, "linear_conv_kernel_dim");
  const auto multiple = [&](uint32_t value, const char *name) {
    require(value % 8 == 0, std::string(name) + " is " + std::to_string(value) +
                                ", the CUDA kernels take multiples of 8");
  };
  multiple(d.hidden, "hidden_size");
  multiple(d.intermediate, "intermediate_size");
  require(d.hidden <= 8192,
          "hidden_size is " + std::to_string(d.hidden) + ", the CUDA kernels take at most 8192");
}

// ---- loading ---------------------------------------------------------------------------------

struct Backend::Piece {
  const std::byte *from;
  Dtype dtype;
  bool to_float;  // of a vector; else bf16
  size_t elements;
  std::byte *to;  // device
};

Backend::Backend(const Dimensions &dimensions, size_t weight_bytes, size_t max_positions)
    : dimensions_(dimensions) {
  require_supported(dimensions);
  weights_ = DeviceMemory(weight_bytes, "the weights");
  check(cudaMemset(weights_.as<std::byte>(), 0, weight_bytes), "clearing the weights");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  try {
    check(allow_attention(), "setting the shared memory of attention");
    int device = 0;
    check(cudaGetDevice(&device), "finding the current device");
    check(cudaDeviceGetAttribute(&shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "reading the size of shared memory");
    check(allow_gdn_scan(shared_bytes_), "setting the shared memory of the GDN scan");
    plans_ = std::make_unique<GemmPlans>();
    max_positions += kMostPadding;  // padding has positions too
    rotary_ = DeviceMemory(max_positions * kRotary * sizeof(float), "the rotary table");
    std::vector<float> table(max_positions * kRotary);
    for (size_t j = 0; j < kRotary / 2; ++j) {
      const float frequency = static_cast<float>(
          std::pow(dimensions.rope_theta, -2.0 * static_cast<double>(j) / kRotary));
      for (size_t p = 0; p < max_positions; ++p) {
        const float angle = static_cast<float>(p) * frequency;
        table[p * kRotary + j] = from_bf16(to_bf16(std::cos(angle)));
        table[p * kRotary + kRotary / 2 + j] = from_bf16(to_bf16(std::sin(angle)));
      }
    }
    check(cudaMemcpy(rotary_.as<float>(), table.data(), rotary_.bytes(), cudaMemcpyHostToDevice),
          "copying the rotary table");
    letters_ = DeviceMemory(kLetters * sizeof(uint32_t), "the letters");
  } catch (...) {
    (void)cudaStreamDestroy(stream_);
    throw;
  }
}

Backend::~Backend() {
  (void)cudaStreamSynchronize(stream_);
  (void)cudaStreamDestroy(stream_);
}

size_t Backend::matrix_bytes(const HostTensor &tensor) {
  return aligned(padded_rows(tensor.shape.at(0)) * tensor.shape.at(1) * sizeof(bf16));
}
size_t Backend::vector_bytes(const HostTensor &tensor) { return aligned(tensor.elements() * 4); }

auto Backend::matrix(const std::vector<HostTensor> &stack) -> Matrix {
  Matrix matrix;
  matrix.cols = stack.front().shape.at(1);
  std::byte *to = weights_.as<std::byte>(weights_used_);
  matrix.data = reinterpret_cast<const bf16 *>(to);
  for (const HostTensor &part : stack) {
    matrix.rows += part.shape.at(0);
    pieces_.push_back({part.data, part.dtype, false, part.elements(), to});
    to += part.elements() * sizeof(bf16);
  }
  matrix.rows = padded_rows(matrix.rows);
  weights_used_ += aligned(matrix.rows * matrix.cols * sizeof(bf16));
  return matrix;
}

auto Backend::vector(const HostTensor &tensor) -> Vector {
  std::byte *const to = weights_.as<std::byte>(weights_used_);
  pieces_.push_back({tensor.data, tensor.dtype, true, tensor.elements(), to});
  weights_used_ += vector_bytes(tensor);
  return {reinterpret_cast<const float *>(to)};
}

void Backend::upload(const std::function<void(size_t, size_t)> &progress) {
  constexpr size_t kElements = size_t{4} << 20;  // of one copy
  constexpr size_t kThreads = 4;                 // one core cannot keep the bus busy
  std::vector<Piece> copies;
  size_t all = 0;
  for (const Piece &piece : pieces_) {
    const size_t in = size_of(piece.dtype), out = piece.to_float ? 4 : 2;
    for (size_t done = 0; done < piece.elements; done += kElements) {
      Piece copy = piece;
      copy.elements = std::min(kElements, piece.elements - done);
      copy.from += done * in;
      copy.to += done * out;
      copies.push_back(copy);
      all += copy.elements * out;
    }
  }
  pieces_.clear();

  int device = 0;
  check(cudaGetDevice(&device), "finding the current device");
  std::atomic<size_t> next{0}, bytes{0};
  std::mutex mutex;  // of the first failure, and of progress
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      check(cudaSetDevice(device), "selecting the device");
      const PinnedMemory buffers[2] = {{kElements * 4, "copying the weights"},
                                       {kElements * 4, "copying the weights"}};
      struct Lane {  // one buffer in flight
        cudaStream_t stream = nullptr;
        ~Lane() {
          if (stream != nullptr) (void)cudaStreamDestroy(stream);
        }
      } lanes[2];
      for (Lane &lane : lanes) {
        check(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking), "making a stream");
      }
      size_t turn = 0;
      for (size_t i; (i = next.fetch_add(1)) < copies.size(); turn ^= 1) {
        const Piece &copy = copies[i];
        std::byte *const staging = buffers[turn].as<std::byte>();
        check(cudaStreamSynchronize(lanes[turn].stream), "copying the weights");
        const size_t out = copy.elements * (copy.to_float ? 4 : 2);
        if (copy.to_float == (copy.dtype == Dtype::f32)) {
          std::memcpy(staging, copy.from, out);
        } else {
          for (size_t e = 0; e < copy.elements; ++e) {
            if (copy.to_float) {
              uint16_t half;
              std::memcpy(&half, copy.from + 2 * e, 2);
              const float value = from_bf16(half);
              std::memcpy(staging + 4 * e, &value, 4);
            } else {
              float value;
              std::memcpy(&value, copy.from + 4 * e, 4);
              const uint16_t half = to_bf16(value);
              std::memcpy(staging + 2 * e, &half, 2);
            }
          }
        }
        check(cudaMemcpyAsync(copy.to, staging, out, cudaMemcpyHostToDevice, lanes[turn].stream),
              "copying the weights");
        const size_t done = bytes.fetch_add(out) + out;
        if (progress) {
          const std::lock_guard lock(mutex);
          progress(done, all);
        }
      }
      for (Lane &lane : lanes) check(cudaStreamSynchronize(lane.stream), "copying the weights");
    } catch (...) {
      next.store(copies.size());
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  {
    const BlockedSignals blocked;
    for (size_t i = 1; i < kThreads; ++i) {
      try {
        threads.emplace_back(work);
      } catch (const std::system_error &) {
        break;  // fewer threads are only slower
      }
    }
  }
  work();
  for (std::thread &thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

Backend::State::State(const Dimensions &d, size_t count) : tokens(count), room(count) {
  if (count % kTile != 0) {
    throw Error(CUA_INTERNAL,
                "a prefix of " + std::to_string(count) + " tokens, which is no multiple of 64");
  }
  const size_t kv = aligned(count * 2 * d.kv_heads * d.head_dim * sizeof(bf16));
  const size_t channels =
      2 * size_t{d.gdn_key_heads} * d.gdn_key_dim + size_t{d.gdn_value_heads} * d.gdn_value_dim;
  const size_t tail = aligned((d.conv_kernel - 1) * channels * sizeof(bf16));
  const size_t gdn =
      aligned(size_t{d.gdn_value_heads} * d.gdn_key_dim * d.gdn_value_dim * sizeof(float));
  size_t bytes = 0;
  for (const bool is_gdn : d.gdn_layers) bytes += is_gdn ? tail + gdn : kv;
  memory_ = DeviceMemory(bytes, "the state of a prefix");
  size_t used = 0;
  for (const bool is_gdn : d.gdn_layers) {
    LayerState layer{};
    if (is_gdn) {
      layer.conv_tail = memory_.as<bf16>(used);
      layer.gdn = memory_.as<float>(used + tail);
      used += tail + gdn;
    } else {
      layer.kv = memory_.as<bf16>(used);
      used += kv;
    }
    host_.push_back(layer);
  }
  table_ = DeviceMemory(host_.size() * sizeof(LayerState), "the state of a prefix");
  check(cudaMemcpy(table_.as<LayerState>(), host_.data(), table_.bytes(), cudaMemcpyHostToDevice),
        "copying the table of a prefix");
}

// ---- scratch and tables ----------------------------------------------------------------------

void Backend::start_measuring() {
  measuring_ = true;
  top_ = most_ = 0;
}

size_t Backend::stop_measuring() {
  measuring_ = false;
  top_ = 0;
  return most_;
}

void Backend::reserve_scratch(size_t bytes) {
  if (bytes <= scratch_.bytes()) return;
  scratch_ = DeviceMemory();  // first give back, then ask
  scratch_ = DeviceMemory(bytes, "the scratch of a forward pass");
}

void *Backend::take(size_t bytes) {
  const size_t at = top_;
  top_ += aligned(bytes);
  most_ = std::max(most_, top_);
  if (measuring_) return nullptr;
  if (top_ > scratch_.bytes()) throw Error(CUA_INTERNAL, "a pass needs more scratch than measured");
  return scratch_.as<std::byte>(at);
}

auto Backend::tensor(size_t rows, size_t cols) -> Tensor {
  const size_t padded = std::max<size_t>(rows, kRoomRows);  // see linear()
  return {static_cast<bf16 *>(take(padded * cols * sizeof(bf16))), rows, cols, cols};
}

auto Backend::gates(size_t rows) -> Gates {
  return {static_cast<float *>(take(rows * dimensions_.gdn_value_heads * sizeof(float)))};
}

// Byte offsets of the tables in batch_host_ and, the same, in batch_device_. They depend on the
// numbers of rows and sequences alone, so that a captured pass finds them again.
struct Backend::Tables {
  Tables(size_t rows, size_t sequences) : tile_slots(rows / kTile + sequences) {
    const auto place = [this](size_t bytes) {
      const size_t at = this->bytes;
      this->bytes += aligned(bytes);
      return at;
    };
    ids = place(rows * sizeof(uint32_t));
    cu_seqlens = place((sequences + 1) * sizeof(uint32_t));
    last_rows = place(sequences * sizeof(uint32_t));
    row_sequence = place(rows * sizeof(uint32_t));
    prefix_tokens = place(sequences * sizeof(uint32_t));
    prefixes = place(sequences * sizeof(LayerState *));
    tiles_all = place(tile_slots * sizeof(QueryTile));
    tiles_last = place(sequences * sizeof(QueryTile));
    cu_tiles = place((sequences + 1) * sizeof(uint32_t));
  }
  size_t tile_slots;
  size_t ids, cu_seqlens, last_rows, row_sequence, prefix_tokens, prefixes, tiles_all, tiles_last,
      cu_tiles;
  size_t bytes = 0;
};

namespace {

uint32_t tiles_over(const Backend::Batch &batch) {
  size_t tiles = 0;
  for (size_t s = 0; s < batch.sequences(); ++s) {
    tiles += (batch.end(s) - batch.begin(s) + kTile - 1) / kTile;
  }
  return narrow(tiles);
}

}  // namespace

bool Backend::fits(const Batch &batch) const {
  return batch.rows() <= row_capacity_ && batch.sequences() <= sequence_capacity_;
}

void Backend::reserve_batch(size_t rows, size_t sequences) {
  rows = std::bit_ceil(std::max(rows, row_capacity_));
  sequences = std::bit_ceil(std::max(sequences, sequence_capacity_));
  row_capacity_ = sequence_capacity_ = 0;
  const size_t bytes = Tables(rows, sequences).bytes;
  batch_host_ = PinnedMemory();
  batch_host_ = PinnedMemory(bytes, "the tables of a batch");
  batch_device_ = DeviceMemory();
  batch_device_ = DeviceMemory(bytes, "the tables of a batch");
  const size_t logits = sequences * kLetters * sizeof(float);
  logits_host_ = PinnedMemory();
  logits_host_ = PinnedMemory(logits, "the logits");
  logits_device_ = DeviceMemory();
  logits_device_ = DeviceMemory(logits, "the logits");
  row_capacity_ = rows;
  sequence_capacity_ = sequences;
}

void Backend::stage(const Batch &batch) {
  const Tables at(batch.rows(), batch.sequences());
  std::copy(batch.ids.begin(), batch.ids.end(), batch_host_.as<uint32_t>(at.ids));
  std::copy(batch.cu_seqlens.begin(), batch.cu_seqlens.end(),
            batch_host_.as<uint32_t>(at.cu_seqlens));
  QueryTile *const tiles = batch_host_.as<QueryTile>(at.tiles_all);
  QueryTile *tile = tiles;
  batch_host_.as<uint32_t>(at.cu_tiles)[0] = 0;
  for (size_t s = 0; s < batch.sequences(); ++s) {
    const size_t begin = batch.begin(s), end = batch.end(s);
    const State *const prefix = batch.prefix(s);
    const size_t before = prefix != nullptr ? prefix->tokens : 0;
    batch_host_.as<uint32_t>(at.prefix_tokens)[s] = narrow(before);
    batch_host_.as<const LayerState *>(at.prefixes)[s] =
        prefix != nullptr ? prefix->layers() : nullptr;
    std::fill_n(batch_host_.as<uint32_t>(at.row_sequence) + begin, end - begin, narrow(s));
    for (size_t row = begin; row < end; row += kTile) {
      *tile++ = {narrow(s), narrow(row), narrow(std::min(kTile, end - row)),
                 narrow(before + row - begin)};
    }
    batch_host_.as<uint32_t>(at.cu_tiles)[s + 1] = narrow(static_cast<size_t>(tile - tiles));
    const size_t last = batch.last(s);
    batch_host_.as<uint32_t>(at.last_rows)[s] = narrow(last);
    batch_host_.as<QueryTile>(at.tiles_last)[s] = {narrow(s), narrow(s), 1,
                                                   narrow(before + last - begin)};
  }
}

DeviceBatch Backend::device_batch(const Batch &batch) const {
  const Tables at(batch.rows(), batch.sequences());
  DeviceBatch device;
  device.ids = batch_device_.as<uint32_t>(at.ids);
  device.cu_seqlens = batch_device_.as<uint32_t>(at.cu_seqlens);
  device.last_rows = batch_device_.as<uint32_t>(at.last_rows);
  device.row_sequence = batch_device_.as<uint32_t>(at.row_sequence);
  device.prefix_tokens = batch_device_.as<uint32_t>(at.prefix_tokens);
  device.prefixes = batch_device_.as<const LayerState *>(at.prefixes);
  device.tiles_all = batch_device_.as<QueryTile>(at.tiles_all);
  device.tiles_last = batch_device_.as<QueryTile>(at.tiles_last);
  device.cu_tiles = batch_device_.as<uint32_t>(at.cu_tiles);
  device.rows = narrow(batch.rows());
  device.sequences = narrow(batch.sequences());
  device.tile_count = tiles_over(batch);
  return device;
}

// ---- operations ------------------------------------------------------------------------------

void Backend::launched(const char *what) { check(cudaGetLastError(), what); }

auto Backend::begin(const Batch &batch) -> Scope {
  if (!measuring_) {
    const Tables at(batch.rows(), batch.sequences());
    check(cudaMemcpyAsync(batch_device_.as<std::byte>(), batch_host_.as<std::byte>(), at.bytes,
                          cudaMemcpyHostToDevice, stream_),
          "copying the ids");
  }
  return Scope(top_);
}

auto Backend::scratch() -> Scope { return Scope(top_); }

void Backend::embed(const Batch &batch, const Matrix &embedding, const Tensor &x) {
  if (measuring_) return;
  cuda::embed(device_batch(batch), embedding.data, narrow(x.cols), x.data, stream_);
  launched("in embed");
}

void Backend::rms_norm(const Tensor &x, const Vector &w, const Tensor &y) {
  if (measuring_) return;
  cuda::rms_norm(x.data, w.data, narrow(x.rows), narrow(x.cols),
                 static_cast<float>(dimensions_.rms_norm_eps), y.data, stream_);
  launched("in rms_norm");
}

// Tensors have room for kRoomRows rows; what stands in the padding reaches no other row.
void Backend::linear(const Tensor &x, const Matrix &w, const Tensor &y, bool add) {
  if (measuring_) return;
  plans_->run(x.data, w.data, y.data, narrow(x.rows), narrow(w.rows), narrow(w.cols),
              narrow(x.stride), narrow(y.stride), add, stream_);
}

void Backend::gather_last(const Batch &batch, const Tensor &all, const Tensor &last) {
  if (measuring_) return;
  cuda::gather_last(device_batch(batch), all.data, narrow(all.stride), narrow(all.cols), last.data,
                    stream_);
  launched("in gather_last");
}

void Backend::gdn_prepare(const Batch &batch, size_t layer, const Tensor &projected,
                          const Vector &conv, const Vector &a_log, const Vector &dt_bias,
                          const Tensor &q, const Tensor &k, const Tensor &v, const Gates &g,
                          const Gates &beta) {
  if (measuring_) return;
  const GdnShape shape{dimensions_.gdn_key_heads, dimensions_.gdn_value_heads,
                       narrow(projected.stride)};
  cuda::gdn_prepare(device_batch(batch), narrow(layer), shape, projected.data, conv.data,
                    a_log.data, dt_bias.data, q.data, k.data, v.data, g.data, beta.data,
                    batch.capture != nullptr ? batch.capture->layers() : nullptr, stream_);
  launched("in gdn_prepare");
}

void Backend::gdn_scan(const Batch &batch, size_t layer, const Tensor &q, const Tensor &k,
                       const Tensor &v, const Gates &g, const Gates &beta, const Tensor &o) {
  void *const workspace =
      take(gdn_scan_elements(tiles_over(batch), dimensions_.gdn_value_heads) * sizeof(bf16));
  if (measuring_) return;
  const GdnShape shape{dimensions_.gdn_key_heads, dimensions_.gdn_value_heads, 0};
  cuda::gdn_scan(device_batch(batch), narrow(layer), shape, q.data, k.data, v.data, g.data,
                 beta.data, static_cast<bf16 *>(workspace), o.data,
                 batch.capture != nullptr ? batch.capture->layers() : nullptr, shared_bytes_,
                 stream_);
  launched("in gdn_scan");
}

void Backend::gated_norm(const Tensor &x, const Tensor &z, const Vector &w, const Tensor &y) {
  if (measuring_) return;
  cuda::gated_norm(x.data, z.data, narrow(z.stride), w.data, narrow(x.rows),
                   dimensions_.gdn_value_heads, static_cast<float>(dimensions_.rms_norm_eps),
                   y.data, stream_);
  launched("in gated_norm");
}

void Backend::attention_prepare(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                                const Tensor &kv, const Vector &q_norm, const Vector &k_norm) {
  if (measuring_) return;
  const DeviceBatch device = device_batch(batch);
  const AttentionShape shape{dimensions_.heads, dimensions_.kv_heads, narrow(q_gate.stride),
                             narrow(kv.stride)};
  if (const State *const before = batch.prefix(0); batch.capture != nullptr && before != nullptr) {
    check(
        cudaMemcpyAsync(batch.capture->layer(layer).kv, before->layer(layer).kv,
                        before->tokens * kv.cols * sizeof(bf16), cudaMemcpyDeviceToDevice, stream_),
        "copying the keys and values of a prefix");
  }
  cuda::attention_prepare(
      device, rows == Rows::last, shape, q_gate.data, kv.data, q_norm.data, k_norm.data,
      rotary_.as<float>(), static_cast<float>(dimensions_.rms_norm_eps),
      batch.capture != nullptr ? batch.capture->layer(layer).kv : nullptr, stream_);
  launched("in attention_prepare");
}

void Backend::attention(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                        const Tensor &kv, const Tensor &o) {
  if (measuring_) return;
  const DeviceBatch device = device_batch(batch);
  const AttentionShape shape{dimensions_.heads, dimensions_.kv_heads, narrow(q_gate.stride),
                             narrow(kv.stride)};
  const bool all = rows == Rows::all;
  cuda::attention(device, all ? device.tiles_all : device.tiles_last,
                  all ? device.tile_count : device.sequences, narrow(layer), shape, q_gate.data,
                  kv.data, o.data, stream_);
  launched("in attention");
}

void Backend::silu_mul(const Tensor &gate_up, const Tensor &y) {
  if (measuring_) return;
  cuda::silu_mul(gate_up.data, narrow(y.rows), narrow(y.cols), y.data, stream_);
  launched("in silu_mul");
}

void Backend::readout(const Tensor &x, const Matrix &embedding,
                      const std::array<uint32_t, 26> &letters, float * /*logits*/, float *hidden) {
  if (measuring_) return;
  // The letters are the same in every pass of an engine.
  if (!letters_known_) {
    check(cudaMemcpy(letters_.as<uint32_t>(), letters.data(), letters_.bytes(),
                     cudaMemcpyHostToDevice),
          "copying the letters");
    letters_known_ = true;
  }
  cuda::readout(x.data, embedding.data, letters_.as<uint32_t>(), narrow(x.rows), narrow(x.cols),
                logits_device_.as<float>(), stream_);
  launched("in readout");
  check(cudaMemcpyAsync(logits_host_.as<float>(), logits_device_.as<float>(),
                        x.rows * kLetters * sizeof(float), cudaMemcpyDeviceToHost, stream_),
        "copying the logits");
  if (hidden != nullptr) {
    std::vector<uint16_t> halves(x.rows * x.cols);
    wait();
    check(cudaMemcpy(halves.data(), x.data, halves.size() * sizeof(bf16), cudaMemcpyDeviceToHost),
          "copying the hidden state");
    std::transform(halves.begin(), halves.end(), hidden, from_bf16);
  }
}

void Backend::wait() { check(cudaStreamSynchronize(stream_), "in a forward pass"); }

size_t Backend::device_bytes() const {
  return weights_.bytes() + scratch_.bytes() + batch_device_.bytes() + rotary_.bytes() +
         logits_device_.bytes() + letters_.bytes() + plans_->device_bytes();
}

}  // namespace cua::backend::cuda
