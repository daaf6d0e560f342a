// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "tools/bench_command.h"
#include "tools/bench_flags.h"
#include "tools/bench_measure.h"
#include "tools/cuda_module.h"

namespace cua::tools {

namespace po = boost::program_options;

void bench_tune(int argc, const char *const *argv) {
  BenchFlags flags;
  TuneRequest request;
  po::options_description own(
      "Times cuBLASLt's algorithms for the matrix products of a model, and writes the best to a "
      "file");
  own.add_options()("out", po::value(&request.out)->value_name("FILE"), "the file of plans");
  if (!parse_bench_flags(argc, argv, own, flags)) return;
  if (request.out.empty()) throw UsageError("--out is missing; name the file of plans");
  require_gpu(flags, "tune");
  request.model = flags.model;
  request.device = flags.ordinal();
  Tune tune;
  module_function<TuneFunction>("cua_bench_tune_cuda", "tune")(request, tune);
  if (tune.timed_anew != 0) {
    throw std::runtime_error("nothing is written: read back, an engine would time " +
                             std::to_string(tune.timed_anew) + " of " + std::to_string(tune.plans) +
                             " plans again, since their bits are not those of the reference:\n" +
                             tune.passed_over);
  }
  std::ofstream file(request.out, std::ios::binary);
  file << tune.text;
  if (!file.flush()) throw std::runtime_error("cannot write " + request.out);
  std::printf("%zu plans in %s; passes of a load: %.2f s timing them, %.2f s with the file\n",
              tune.plans, request.out.c_str(), tune.timed_s, tune.from_file_s);
  write_json(flags.json,
             {{"plans", tune.plans}, {"timed_s", tune.timed_s}, {"from_file_s", tune.from_file_s}});
}

}  // namespace cua::tools
