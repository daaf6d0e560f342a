// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>
#include <cstdio>

#include "tools/bench_command.h"
#include "tools/bench_flags.h"
#include "tools/cuda_module.h"

namespace cua::tools {
namespace {

Split split_cuda(const SplitRequest &request) {
  Split split;
  module_function<SplitFunction>("cua_bench_split_cuda", "--split")(request, split);
  return split;
}

double tera(double rate) { return rate * 1e-12; }
double giga(double rate) { return rate * 1e-9; }

}  // namespace

boost::json::value bench_split(const BenchFlags &flags, const SplitRequest &request) {
  const Split split = flags.is_cpu() ? split_cpu(request) : split_cuda(request);
  boost::json::array passes;
  if (split.copy_bytes_per_s > 0) {
    std::printf("\nthis card at best: copies %.0f GB/s, products of bf16 %.0f TFLOP/s\n",
                giga(split.copy_bytes_per_s), tera(split.product_flops_per_s));
  }
  for (const SplitPass &pass : split.passes) {
    double seconds = 0;
    for (const SplitOperation &operation : pass.operations) seconds += operation.seconds;
    std::printf("\n%u tokens: %.3f ms in operations timed one by one", pass.tokens, seconds * 1e3);
    if (pass.launches != 0) std::printf(", %zu launches a forward", pass.launches);
    std::printf("\n%-28s %7s %11s %11s %8s %9s %9s\n", "operation", "calls", "ms", "us a call",
                "share", "TFLOP/s", "GB/s");
    boost::json::array operations;
    for (const SplitOperation &o : pass.operations) {
      std::printf("%-28s %7.0f %11.3f %11.2f %7.1f%% %9.1f %9.0f\n", o.name.c_str(), o.calls,
                  o.seconds * 1e3, o.seconds / o.calls * 1e6, 100 * o.seconds / seconds,
                  tera(o.flops / o.seconds), giga(o.bytes / o.seconds));
      operations.push_back({{"name", o.name},
                            {"calls", o.calls},
                            {"seconds", o.seconds},
                            {"flops", o.flops},
                            {"bytes", o.bytes}});
    }
    passes.push_back(
        {{"tokens", pass.tokens}, {"launches", pass.launches}, {"operations", operations}});
  }
  return {{"copy_bytes_per_s", split.copy_bytes_per_s},
          {"product_flops_per_s", split.product_flops_per_s},
          {"passes", passes}};
}

}  // namespace cua::tools
