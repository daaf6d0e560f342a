// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include "backend/cuda/check.h"

namespace cua::backend::cuda {

enum class Where { device, pinned };

// Owns one allocation, on the device or in page-locked host memory.
template <Where kWhere>
class Memory {
 public:
  Memory() = default;
  // `what` names the purpose in an error.
  Memory(size_t bytes, const std::string &what) : bytes_(bytes) {
    if (bytes == 0) return;
    if constexpr (kWhere == Where::device) {
      check(cudaMalloc(&data_, bytes),
            "allocating " + std::to_string(bytes) + " bytes for " + what);
    } else {
      check(cudaMallocHost(&data_, bytes),
            "allocating " + std::to_string(bytes) + " pinned bytes for " + what);
    }
  }
  ~Memory() { release(); }
  Memory(Memory &&other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory &operator=(Memory &&other) noexcept {
    if (this == &other) return *this;
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  template <class T>
  T *as(size_t byte_offset = 0) const {
    return reinterpret_cast<T *>(static_cast<std::byte *>(data_) + byte_offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  void release() {
    if (data_ == nullptr) return;
    if constexpr (kWhere == Where::device) {
      (void)cudaFree(data_);
    } else {
      (void)cudaFreeHost(data_);
    }
    data_ = nullptr;
  }
  void *data_ = nullptr;
  size_t bytes_ = 0;
};

using DeviceMemory = Memory<Where::device>;
using PinnedMemory = Memory<Where::pinned>;

}  // namespace cua::backend::cuda
