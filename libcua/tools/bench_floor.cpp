// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <cstdio>

#include "tools/bench_command.h"
#include "tools/bench_flags.h"
#include "tools/bench_measure.h"
#include "tools/cuda_module.h"

namespace cua::tools {
namespace {

namespace po = boost::program_options;

boost::json::object json_of(const FloorPart &part) {
  return {{"seconds", part.seconds}, {"flops", part.flops}};
}

double tera(const FloorPart &part) {
  return part.seconds > 0 ? part.flops / part.seconds * 1e-12 : 0;
}

}  // namespace

void bench_floor(int argc, const char *const *argv) {
  BenchFlags flags;
  FloorRequest request;
  std::string tokens = "64,153,218,512";
  po::options_description own(
      "Times, alone and in captured graphs, the matrix products and the attention of a pass");
  own.add_options()("tokens", po::value(&tokens)->value_name("N,N,..."),
                    "prompt lengths; 64,153,218,512")(
      "runs", po::value(&request.runs)->value_name("N"), "timed replays; 10");
  if (!parse_bench_flags(argc, argv, own, flags)) return;
  request.lengths = parse_lengths(tokens);
  require_within("--runs", request.runs, 1, 10000);
  require_gpu(flags, "floor");
  request.model = flags.model;
  request.device = flags.ordinal();
  Floor floor;
  module_function<FloorFunction>("cua_bench_floor_cuda", "floor")(request, floor);

  std::printf("%s: copies %.0f GB/s, reads %.0f GB/s\n", floor.device.c_str(),
              floor.copy_bytes_per_s * 1e-9, floor.read_bytes_per_s * 1e-9);
  std::printf("%7s %11s %11s %9s %12s %9s %11s\n", "tokens", "weights ms", "products ms", "TFLOP/s",
              "attention ms", "TFLOP/s", "both ms");
  boost::json::array passes;
  for (const FloorPass &pass : floor.passes) {
    const double weights = pass.weights_bytes / floor.read_bytes_per_s;
    std::printf("%7u %11.3f %11.3f %9.1f %12.3f %9.1f %11.3f\n", pass.tokens, weights * 1e3,
                pass.products.seconds * 1e3, tera(pass.products), pass.attention.seconds * 1e3,
                tera(pass.attention), (pass.products.seconds + pass.attention.seconds) * 1e3);
    passes.push_back({{"tokens", pass.tokens},
                      {"weights_bytes", pass.weights_bytes},
                      {"products", json_of(pass.products)},
                      {"attention", json_of(pass.attention)}});
  }
  write_json(flags.json, {{"device", floor.device},
                          {"copy_bytes_per_s", floor.copy_bytes_per_s},
                          {"read_bytes_per_s", floor.read_bytes_per_s},
                          {"runs", request.runs},
                          {"passes", passes}});
}

}  // namespace cua::tools
