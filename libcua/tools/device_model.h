// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <numeric>
#include <string>

#include "backend/cuda/backend.h"
#include "checkpoint/checkpoint.h"
#include "model/dimensions.h"
#include "model/forward.h"

namespace cua::tools {

// A checkpoint in the memory of the current device, and the forward pass over it. B: the CUDA
// backend, or what is derived from it.
template <class B>
struct DeviceModel {
  // max_positions: longest prompt, in tokens. Throws Error.
  DeviceModel(const std::string &folder, size_t max_positions)
      : checkpoint(folder),
        backend(model::dimensions(checkpoint.config()),
                model::weight_bytes<B>(checkpoint.config(), source()), max_positions),
        forward(backend, checkpoint.config(), source()) {
    backend.upload({});
    std::iota(letters.begin(), letters.end(), 32);
  }

  // Makes room for a batch and writes the tables that its passes read. The stream must be idle.
  void prepare(const typename B::Batch &batch) {
    backend.start_measuring();
    run(batch);
    backend.reserve_scratch(backend.stop_measuring());
    if (!backend.fits(batch)) backend.reserve_batch(batch.rows(), batch.sequences());
    backend.stage(batch);
  }
  void run(const typename B::Batch &batch) { forward.run(batch, letters, nullptr); }

  const checkpoint::Checkpoint checkpoint;
  B backend;

 private:
  model::TensorSource source() const {
    return [this](const std::string &name) -> const auto & { return checkpoint.tensor(name); };
  }

  model::Forward<B> forward;
  std::array<uint32_t, 26> letters;
};

}  // namespace cua::tools
