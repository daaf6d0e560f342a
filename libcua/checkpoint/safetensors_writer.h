// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/host_tensor.h"

namespace cua::checkpoint {

// A tensor to be written: its name as in the file.
struct OutputTensor {
  std::string name;
  backend::Dtype dtype;
  std::vector<uint64_t> shape;
  uint64_t bytes() const;
};

// Lays tensors out over shards as Transformers does: STEM.safetensors, or numbered shards of at
// most 5 GB, STEM-00001-of-00002.safetensors, with an index. Creates the files, header and size
// included; the data are written by offset, from any number of threads.
class SafetensorsWriter {
 public:
  // Throws Error INTERNAL that names the file (a full disk, no permission).
  SafetensorsWriter(const std::filesystem::path &folder, std::vector<OutputTensor> tensors,
                    const std::string &stem = "model");
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter &) = delete;
  SafetensorsWriter &operator=(const SafetensorsWriter &) = delete;

  const std::vector<OutputTensor> &tensors() const { return tensors_; }
  uint64_t bytes() const { return bytes_; }  // of all tensors
  // Writes data at byte `offset` of tensor `index`. Thread safe.
  void write(size_t index, uint64_t offset, std::span<const std::byte> data) const;

 private:
  struct Shard {
    std::string path;
    int fd;
    std::unique_ptr<std::mutex> mutex;  // of its writers
  };
  struct Place {
    size_t shard;
    uint64_t offset;  // in the file
  };
  std::vector<OutputTensor> tensors_;
  std::vector<Shard> shards_;
  std::vector<Place> places_;  // one a tensor
  uint64_t bytes_ = 0;
};

}  // namespace cua::checkpoint
