// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "backend/cuda/gemm_plan_file.h"
#include "tools/bench_measure.h"
#include "tools/cuda_module.h"
#include "tools/device_model.h"

namespace cua::tools {
namespace {

using backend::cuda::Backend;

// A pass of every row bucket, as an engine runs them while loading. Gives the seconds they take.
double make_plans(DeviceModel<Backend> &model) {
  using backend::cuda::kMostPlannedRows;
  using backend::cuda::row_bucket;
  return seconds_of([&] {
    for (uint32_t rows = row_bucket(1);; rows = row_bucket(rows + 1)) {
      const std::vector<uint32_t> ids(rows);
      const uint32_t cu_seqlens[] = {0, rows};
      const Backend::Batch batch{ids, cu_seqlens, {}};
      model.prepare(batch);
      model.run(batch);
      model.backend.wait();
      if (rows == kMostPlannedRows) break;
    }
  });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void cua_bench_tune_cuda(
    const TuneRequest &request, Tune &tune) {
  using namespace backend::cuda;
  const CurrentDevice current(request.device);
  {
    DeviceModel<Backend> model(request.model, kMostPlannedRows);
    tune.timed_s = make_plans(model);
    const GemmPlans &plans = std::as_const(model.backend).plans();
    tune.plans = plans.size();
    tune.text = format_gemm_plans(plans.file());
  }
  // Then as an engine takes them, from a fresh start.
  DeviceModel<Backend> model(request.model, kMostPlannedRows);
  model.backend.plans().use(parse_gemm_plans(tune.text, request.out), request.out);
  tune.from_file_s = make_plans(model);
  const GemmPlans &plans = std::as_const(model.backend).plans();
  tune.timed_anew = plans.size() - plans.from_file();
  for (const std::string &name : plans.passed_over()) tune.passed_over += name + "\n";
}

}  // namespace cua::tools
