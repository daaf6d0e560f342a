// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cua::backend {

enum class Dtype : uint8_t { bf16, f32 };

constexpr size_t size_of(Dtype dtype) { return dtype == Dtype::bf16 ? 2 : 4; }

// A tensor in host memory, row-major. Does not own its data (a mapped checkpoint does).
// `data` is little-endian and may be unaligned: safetensors promises no alignment.
struct HostTensor {
  Dtype dtype = Dtype::bf16;
  std::vector<uint64_t> shape;
  const std::byte *data = nullptr;

  uint64_t elements() const {
    uint64_t n = 1;
    for (const uint64_t extent : shape) n *= extent;
    return n;
  }
  uint64_t bytes() const { return elements() * size_of(dtype); }
};

}  // namespace cua::backend
