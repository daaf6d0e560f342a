// SPDX-License-Identifier: Apache-2.0
// One operation of a backend, run from host values to host values, so that a test is written once
// and runs on the GPU and on the CPU in float and in double.
#pragma once
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "backend/cpu/backend.h"
#include "backend/cuda/backend.h"

namespace cua::test {

// What bf16 can hold, so that every side starts from the same numbers.
inline float as_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline std::vector<float> normal_values(size_t n, uint32_t seed, float scale = 1, float mean = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, scale);
  std::vector<float> values(n);
  for (float &value : values) value = as_bf16(normal(random));
  return values;
}

inline std::vector<float> uniform_values(size_t n, uint32_t seed, float low, float high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(n);
  for (float &value : values) value = uniform(random);
  return values;
}

using Values = std::vector<double>;

// Sequences packed row after row.
struct Sequences {
  explicit Sequences(const std::vector<size_t> &lengths, uint32_t vocabulary = 64) {
    std::mt19937 random(7);
    for (const size_t length : lengths) {
      for (size_t i = 0; i < length; ++i) ids.push_back(random() % vocabulary);
      cu_seqlens.push_back(static_cast<uint32_t>(ids.size()));
    }
  }
  size_t rows() const { return ids.size(); }
  size_t count() const { return cu_seqlens.size() - 1; }
  std::vector<uint32_t> ids, cu_seqlens{0};
};

template <class Real>
class CpuSide {
 public:
  using Backend = backend::cpu::Backend<Real>;
  using Tensor = typename Backend::Tensor;
  using Gates = typename Backend::Gates;
  using State = typename Backend::State;
  using Batch = typename Backend::Batch;
  static constexpr bool kGpu = false;

  explicit CpuSide(const backend::Dimensions &dimensions)
      : backend_(dimensions, std::max(1u, std::thread::hardware_concurrency())) {}
  Backend &backend() { return backend_; }

  // run(batch) returns what it wants of get().
  template <class Run>
  auto pass(const Sequences &sequences, const Run &run) {
    const Batch batch{sequences.ids, sequences.cu_seqlens, {}};
    const auto scope = backend_.begin(batch);
    return run(batch);
  }
  Tensor make(size_t rows, size_t cols) { return backend_.tensor(rows, cols); }
  Tensor put(const std::vector<float> &values, size_t rows) {
    const Tensor tensor = make(rows, values.size() / rows);
    for (size_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + static_cast<ptrdiff_t>(r * tensor.cols), tensor.cols,
                  tensor.row(r));
    }
    return tensor;
  }
  Gates make_gates(size_t rows) { return backend_.gates(rows); }
  Gates put_gates(const std::vector<float> &values, size_t rows) { return put(values, rows); }
  Values get(const Tensor &tensor) {
    Values values;
    for (size_t r = 0; r < tensor.rows; ++r) {
      values.insert(values.end(), tensor.row(r), tensor.row(r) + tensor.cols);
    }
    return values;
  }
  Values get_gates(const Gates &gates) { return get(gates); }
  typename Backend::Vector vector(const std::vector<float> &values) {
    return {values.begin(), values.end()};
  }
  typename Backend::Matrix matrix(const std::vector<float> &values, size_t rows) {
    return backend_.matrix({{backend::Dtype::f32,
                             {rows, values.size() / rows},
                             reinterpret_cast<const std::byte *>(values.data())}});
  }
  Values logits(const std::vector<float> &host) { return {host.begin(), host.end()}; }

 private:
  Backend backend_;
};

class CudaSide {
 public:
  using Backend = backend::cuda::Backend;
  using Tensor = Backend::Tensor;
  using Gates = Backend::Gates;
  using State = Backend::State;
  using Batch = Backend::Batch;
  using DeviceMemory = backend::cuda::DeviceMemory;
  static constexpr bool kGpu = true;

  explicit CudaSide(const backend::Dimensions &dimensions) : backend_(dimensions, 0, 16384 + 64) {}
  Backend &backend() { return backend_; }

  template <class Run>
  auto pass(const Sequences &sequences, const Run &run,
            const std::vector<const State *> &prefixes = {}, State *capture = nullptr) {
    const Batch batch{sequences.ids, sequences.cu_seqlens, prefixes, capture};
    held_.clear();
    backend_.start_measuring();
    dry_ = true;
    run(batch);
    dry_ = false;
    backend_.reserve_scratch(backend_.stop_measuring());
    if (!backend_.fits(batch)) backend_.reserve_batch(batch.rows(), batch.sequences());
    backend_.stage(batch);
    const auto scope = backend_.begin(batch);
    return run(batch);
  }
  // Poisoned: what an operation leaves unwritten is not a number.
  Tensor make(size_t rows, size_t cols) {
    const Tensor tensor = backend_.tensor(rows, cols);
    if (!dry_) fill(tensor.data, rows * cols * sizeof(backend::cuda::bf16));
    return tensor;
  }
  Tensor put(const std::vector<float> &values, size_t rows) {
    const Tensor tensor = make(rows, values.size() / rows);
    if (dry_) return tensor;
    std::vector<uint16_t> halves;
    for (const float value : values) {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      halves.push_back(static_cast<uint16_t>(bits >> 16));
    }
    copy(tensor.data, halves.data(), halves.size() * 2);
    return tensor;
  }
  Gates make_gates(size_t rows) {
    const Gates gates = backend_.gates(rows);
    if (!dry_) fill(gates.data, gate_bytes(rows));
    gate_rows_ = rows;
    return gates;
  }
  Gates put_gates(const std::vector<float> &values, size_t rows) {
    const Gates gates = make_gates(rows);
    if (!dry_) copy(gates.data, values.data(), gate_bytes(rows));
    return gates;
  }
  Values get(const Tensor &tensor) {
    Values values;
    if (dry_) return values;
    std::vector<uint16_t> halves(tensor.rows * tensor.cols);
    backend_.wait();
    backend::cuda::check(
        cudaMemcpy2D(halves.data(), tensor.cols * 2, tensor.data, tensor.stride * 2,
                     tensor.cols * 2, tensor.rows, cudaMemcpyDeviceToHost),
        "reading a tensor");
    for (const uint16_t half : halves) {
      const uint32_t bits = uint32_t{half} << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
    }
    return values;
  }
  Values get_gates(const Gates &gates) {
    if (dry_) return {};
    std::vector<float> values(gate_bytes(gate_rows_) / sizeof(float));
    backend_.wait();
    backend::cuda::check(
        cudaMemcpy(values.data(), gates.data, gate_bytes(gate_rows_), cudaMemcpyDeviceToHost),
        "reading gates");
    return {values.begin(), values.end()};
  }
  Backend::Vector vector(const std::vector<float> &values) {
    return {hold(values.data(), values.size() * sizeof(float)).as<const float>()};
  }
  Backend::Matrix matrix(const std::vector<float> &values, size_t rows) {
    std::vector<uint16_t> halves;
    for (const float value : values) {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      halves.push_back(static_cast<uint16_t>(bits >> 16));
    }
    return {hold(halves.data(), halves.size() * 2).as<const backend::cuda::bf16>(), rows,
            values.size() / rows};
  }
  Values logits(const std::vector<float> &host) {
    if (dry_) return {};
    backend_.wait();
    return {backend_.logits(), backend_.logits() + host.size()};
  }

 private:
  size_t gate_bytes(size_t rows) const {
    return rows * backend_.dimensions().gdn_value_heads * sizeof(float);
  }
  void fill(void *at, size_t bytes) {
    backend::cuda::check(cudaMemsetAsync(at, 0xff, bytes, backend_.stream()), "poisoning");
  }
  void copy(void *to, const void *from, size_t bytes) {
    backend::cuda::check(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, backend_.stream()), "writing");
    backend_.wait();  // the source may go
  }
  const DeviceMemory &hold(const void *from, size_t bytes) {
    held_.push_back(std::make_unique<DeviceMemory>(bytes, "a weight"));
    copy(held_.back()->as<std::byte>(), from, bytes);
    return *held_.back();
  }

  Backend backend_;
  std::vector<std::unique_ptr<DeviceMemory>> held_;
  bool dry_ = false;
  size_t gate_rows_ = 0;
};

// The largest relative error of a row: ||a - b|| / ||b||, where a row much smaller than the others
// counts as one of a tenth of their size.
inline double worst_row(const Values &a, const Values &b, size_t rows) {
  if (a.size() != b.size() || rows == 0 || b.size() % rows != 0) return INFINITY;
  const size_t cols = b.size() / rows;
  double all = 0, worst = 0;
  for (const double value : b) all += value * value;
  const double floor = 1e-2 * all / static_cast<double>(rows);
  for (size_t r = 0; r < rows; ++r) {
    double difference = 0, norm = 0;
    for (size_t c = r * cols; c < (r + 1) * cols; ++c) {
      difference += (a[c] - b[c]) * (a[c] - b[c]);
      norm += b[c] * b[c];
    }
    if (difference == 0) continue;
    const double error = std::sqrt(difference / std::max(norm, floor));
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

}  // namespace cua::test
