// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace cua::checkpoint {

// What to write: the merged layout with its marker, what the public base model has (nested config,
// vision and multi-token-prediction tensors, no marker), or a LoRA adapter for it.
enum class SyntheticKind { merged, base, adapter };

struct SyntheticOptions {
  SyntheticKind kind = SyntheticKind::merged;
  std::string shape;  // "tiny", "wide" or "4b"
  uint64_t seed = 0;
  uint32_t least_vocabulary = 0;  // rows that a tokenizer needs; the shape's own may be more
  std::vector<std::filesystem::path> copies;  // files copied in, the tokenizer's
  std::filesystem::path out;                  // made; must not hold anything yet
  size_t threads = 0;                         // 0: all cores
  // Bytes; may be empty. From any thread, one call at a time; what it throws ends the work.
  std::function<void(uint64_t done, uint64_t all)> progress;
};

// Writes a random checkpoint. The same kind, shape, seed and
// vocabulary give the same bytes for every number of threads. The weights are scaled so that letter
// probabilities are far from uniform and change with the prompt.
// Nothing is left at `out` after an error. Throws Error INVALID_ARGUMENT, or INTERNAL (the disk).
void write_synthetic(const SyntheticOptions &options);

}  // namespace cua::checkpoint
