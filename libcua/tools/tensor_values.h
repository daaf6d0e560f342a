// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>

#include "backend/bf16.h"
#include "backend/host_tensor.h"

namespace cua::tools {

// Element i of a tensor as it is stored.
inline float value_at(const backend::HostTensor &tensor, uint64_t i) {
  if (tensor.dtype == backend::Dtype::f32) {
    float value;
    std::memcpy(&value, tensor.data + 4 * i, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, tensor.data + 2 * i, 2);
  return backend::from_bf16(half);
}

// The first of elements [begin, end) that is a NaN or infinite.
inline std::optional<uint64_t> first_not_finite(const backend::HostTensor &tensor, uint64_t begin,
                                                uint64_t end) {
  for (uint64_t i = begin; i < end; ++i) {
    if (!std::isfinite(value_at(tensor, i))) return i;
  }
  return std::nullopt;
}

}  // namespace cua::tools
