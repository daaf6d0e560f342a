// SPDX-License-Identifier: Apache-2.0
//
// What a card needs for the parts of a forward pass that no code around them can take away: the
// matrix products one after the other, and attention, beside what its memory gives.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cua::tools {

struct FloorRequest {
  std::string model;   // folder
  int32_t device = 0;  // CUDA ordinal
  std::vector<uint32_t> lengths;
  uint32_t runs = 10;
};

// A part of the pass of one prompt, alone in a captured graph; median of the runs, on the device's
// own clock.
struct FloorPart {
  double seconds = 0, flops = 0;
};

struct FloorPass {
  uint32_t tokens = 0;
  FloorPart products;        // every matrix product, with the weights of its layer
  FloorPart attention;       // the attention of every layer that has it
  double weights_bytes = 0;  // of the products, each read once
};

struct Floor {
  std::string device;
  double copy_bytes_per_s = 0;  // read and written
  double read_bytes_per_s = 0;
  std::vector<FloorPass> passes;
};

}  // namespace cua::tools
