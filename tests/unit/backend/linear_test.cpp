// SPDX-License-Identifier: Apache-2.0
// The matrix product of the CPU backend: right in every shape, and each row's bits its own.
#include <cstring>
#include <random>

#include "backend/cpu/backend.h"
#include "catch.h"

using namespace cua::backend;
using cpu::Backend;

namespace {

Dimensions dimensions() {
  Dimensions d;
  d.conv_kernel = 4;
  d.rms_norm_eps = 1e-6;
  return d;
}

// A weight of random bf16 or F32 values that starts at an odd address, as a checkpoint's may.
struct Weight {
  Weight(size_t rows, size_t cols, Dtype dtype, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    bytes.resize(1 + rows * cols * size_of(dtype));
    for (size_t i = 0; i < rows * cols; ++i) {
      float value = normal(random);
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      if (dtype == Dtype::bf16) bits &= 0xffff0000u;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
      const size_t size = size_of(dtype);
      std::memcpy(bytes.data() + 1 + i * size, reinterpret_cast<char *>(&bits) + 4 - size, size);
    }
    tensor = {dtype, {rows, cols}, bytes.data() + 1};
  }
  std::vector<std::byte> bytes;
  std::vector<float> values;
  HostTensor tensor;
};

template <class Real>
typename Backend<Real>::Tensor random_rows(Backend<Real> &backend, size_t rows, size_t cols) {
  std::mt19937 random(99);
  std::normal_distribution<float> normal;
  const auto x = backend.tensor(rows, cols);
  for (size_t i = 0; i < rows * cols; ++i) x.data[i] = normal(random);
  return x;
}

std::vector<const cpu::Kernels<float> *> variants() {
  std::vector<const cpu::Kernels<float> *> all;
  for (const char *name : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "generic"}) {
    if (const auto *kernels = cpu::kernels_named<float>(name)) all.push_back(kernels);
  }
  return all;
}

}  // namespace

TEST_CASE("linear in every shape, both dtypes, stacked, with and without adding") {
  for (const auto *kernels : variants()) {
    for (const size_t depth : {1, 7, 255, 256, 257, 600}) {
      for (const size_t rows : {1, 5, 16, 17, 31, 48, 49, 64, 65, 100, 385}) {
        Backend<float> backend(dimensions(), 2, *kernels);
        const Weight first(70, depth, Dtype::bf16, 1), second(3, depth, Dtype::f32, 2);
        const auto w = backend.matrix({first.tensor, second.tensor});
        const auto x = random_rows(backend, rows, depth);
        const auto y = backend.tensor(rows, w.rows + 5).columns(2, w.rows);  // a strided view
        for (size_t t = 0; t < rows; ++t) std::fill_n(y.row(t) - 2, w.rows + 5, 1000.0f);
        backend.linear(x, w, y);
        std::vector<float> once;
        for (size_t t = 0; t < rows; ++t) once.insert(once.end(), y.row(t), y.row(t) + w.rows);
        backend.linear_add(x, w, y);
        double worst = 0;
        bool added = true, outside = true;
        for (size_t t = 0; t < rows; ++t) {
          for (size_t n = 0; n < w.rows; ++n) {
            const Weight &weight = n < 70 ? first : second;
            double sum = 0;
            for (size_t k = 0; k < depth; ++k) {
              sum += double{weight.values[(n < 70 ? n : n - 70) * depth + k]} * x.row(t)[k];
            }
            const float got = once[t * w.rows + n];
            worst = std::max(worst, std::abs(got - sum));
            added = added && y.row(t)[n] == got + got;
          }
          outside = outside && y.row(t)[-1] == 1000.0f && y.row(t)[w.rows] == 1000.0f;
        }
        CAPTURE(kernels->name, depth, rows);
        CHECK(worst < 1e-4);
        CHECK(added);
        CHECK(outside);
      }
    }
  }
}

TEST_CASE("a row of linear has the same bits in any place, company and thread count") {
  const size_t depth = 700, most = 450;
  const Weight weight(130, depth, Dtype::bf16, 3);
  for (const auto *kernels : variants()) {
    Backend<float> alone(dimensions(), 1, *kernels);
    const auto w = alone.matrix({weight.tensor});
    const auto x = random_rows(alone, most, depth);
    const auto reference = alone.tensor(most, w.rows);
    for (size_t t = 0; t < most; ++t) {
      alone.linear({x.row(t), 1, depth, depth}, w, {reference.row(t), 1, w.rows, w.rows});
    }
    for (const size_t threads : {1, 3}) {
      Backend<float> backend(dimensions(), threads, *kernels);
      for (const size_t rows : {2, 15, 16, 33, 64, 65, 129, 200, 384, 385, 450}) {
        for (const size_t first : {size_t{0}, most - rows}) {
          const auto scope = backend.scratch();
          const auto y = backend.tensor(rows, w.rows);
          backend.linear({x.row(first), rows, depth, depth}, w, y);
          CAPTURE(kernels->name, threads, rows, first);
          CHECK(std::memcmp(y.data, reference.row(first), rows * w.rows * sizeof(float)) == 0);
        }
      }
    }
  }
}
