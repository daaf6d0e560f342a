// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace cua::tools {

// Reads `bytes` of device memory once, a multiple of 16, and writes nothing but a count at `found`,
// in device memory, of the threads that met only zeros. A launch error is left for the caller.
void read_memory(const void *data, uint64_t bytes, uint32_t *found, int blocks,
                 cudaStream_t stream);

}  // namespace cua::tools
