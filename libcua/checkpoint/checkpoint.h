// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backend/host_tensor.h"
#include "model/config.h"

namespace cua::checkpoint {

enum class MarkerPolicy { required, optional };

// A model folder: config.json, safetensors (mapped), marker. Immutable once open; thread safe.
class Checkpoint {
 public:
  // Validates everything before any tensor is touched: config, marker, every header, the presence,
  // dtype and shape of every tensor of the model. Throws Error BAD_MODEL (or UNSUPPORTED for a
  // model of another kind) that names file, tensor and remedy.
  explicit Checkpoint(const std::filesystem::path &folder,
                      MarkerPolicy marker = MarkerPolicy::required);
  ~Checkpoint();
  Checkpoint(Checkpoint &&) noexcept;
  Checkpoint &operator=(Checkpoint &&) noexcept;

  const model::Config &config() const;
  // By canonical name (model/tensors.h). The data live as long as this object.
  const backend::HostTensor &tensor(std::string_view name) const;
  const std::optional<std::string> &model_id() const;  // the marker's "model"
  // tokenizer.json of the folder, where it has one (be it a link that leads nowhere).
  std::optional<std::filesystem::path> tokenizer_json() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cua::checkpoint
