// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string>

#include "error.h"

namespace cua::backend::cuda {

// Throws Error: OUT_OF_MEMORY where the device has no room, else `otherwise`.
// `what` says what was being done.
inline void check(cudaError_t status, const std::string &what,
                  int32_t otherwise = CUA_DEVICE_FAILED) {
  if (status == cudaSuccess) return;
  const std::string reason =
      std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // this one is not sticky
    throw Error(CUA_OUT_OF_MEMORY, "out of device memory " + what + " (" + reason +
                                       "); free memory on the device, shorten the prompts, or "
                                       "lower max_batch_tokens");
  }
  throw Error(otherwise, "CUDA failed " + what + ": " + reason);
}

inline void check(cublasStatus_t status, const std::string &what,
                  int32_t otherwise = CUA_DEVICE_FAILED) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) otherwise = CUA_OUT_OF_MEMORY;
  throw Error(otherwise, "cuBLASLt failed " + what + ": " + cublasLtGetStatusString(status));
}

// Makes a device current for as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
    check(cudaSetDevice(device), "selecting device " + std::to_string(device));
  }
  ~CurrentDevice() {
    if (before_ >= 0) (void)cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice &) = delete;
  CurrentDevice &operator=(const CurrentDevice &) = delete;

 private:
  int before_ = -1;
};

}  // namespace cua::backend::cuda
