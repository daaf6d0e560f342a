// SPDX-License-Identifier: Apache-2.0
//
// The struct_size rules of abi/cua.h.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "cua.h"
#include "error.h"

namespace cua::api {

// Smallest sizes of version 4.0.
inline constexpr uint32_t kErrorSize = 1032;
inline constexpr uint32_t kOptionsSize = 56;  // through log_user
inline constexpr uint32_t kPromptSize = 40;
inline constexpr uint32_t kScoreSize = 232;
inline constexpr uint32_t kStatsSize = 80;
inline constexpr uint32_t kLargestStruct = 65536;

// Where the structs of version 4.0 end; a later version may add fields behind.
static_assert(sizeof(cua_error) == kErrorSize);
static_assert(offsetof(cua_engine_options, threads) == kOptionsSize);
static_assert(offsetof(cua_prompt, text_length) + sizeof(uint64_t) == kPromptSize);
static_assert(offsetof(cua_score, probabilities) + sizeof(float[26]) == kScoreSize);
static_assert(offsetof(cua_stats, device_bytes) + sizeof(uint64_t) == kStatsSize);

inline void check_size(uint32_t size, uint32_t smallest, const std::string &name) {
  if (size >= smallest && size <= kLargestStruct) return;
  throw Error(CUA_INVALID_ARGUMENT, name + ".struct_size is " + std::to_string(size) +
                                        "; set it to sizeof of the struct (" +
                                        std::to_string(smallest) + " to " +
                                        std::to_string(kLargestStruct) + ")");
}

// A caller's struct as this library knows it: missing fields are zero, an unknown tail must be.
template <class Struct>
Struct read_input(const void *from, uint32_t size, uint32_t smallest, const std::string &name) {
  check_size(size, smallest, name);
  Struct to{};
  std::memcpy(&to, from, std::min<size_t>(size, sizeof(Struct)));
  const auto *const bytes = static_cast<const unsigned char *>(from);
  for (size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw Error(CUA_INVALID_ARGUMENT,
                name + " sets a field at byte " + std::to_string(i) + " that this library (ABI " +
                    std::to_string(CUA_ABI_MAJOR) + "." + std::to_string(CUA_ABI_MINOR) +
                    ") does not know; leave it zero or use a newer library");
  }
  return to;
}

// Writes what fits of `from`, keeping the caller's struct_size.
template <class Struct>
void write_output(void *to, uint32_t size, Struct from) {
  from.struct_size = size;
  std::memcpy(to, &from, std::min<size_t>(size, sizeof(Struct)));
}

}  // namespace cua::api
