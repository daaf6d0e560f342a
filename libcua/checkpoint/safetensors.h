// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/host_tensor.h"
#include "checkpoint/mapped_file.h"

namespace cua::checkpoint {

// One entry of a safetensors header.
struct SafetensorsEntry {
  std::string dtype;  // as spelled: "BF16", "F32", "I64", ...
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the file
};

using SafetensorsHeader = std::map<std::string, SafetensorsEntry, std::less<>>;

// The header of a whole file's bytes, fully validated: length, JSON, known dtypes, shape times size
// against the byte range, and ranges that cover the data without hole, overlap or rest.
// `file` names it in errors. Throws Error BAD_MODEL that names file and tensor.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::string &file);

// A mapped safetensors file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path &path);

  const SafetensorsHeader &header() const { return header_; }
  // A tensor of the header. Throws Error BAD_MODEL where its dtype is neither BF16 nor F32.
  backend::HostTensor tensor(const std::string &name) const;

 private:
  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace cua::checkpoint
