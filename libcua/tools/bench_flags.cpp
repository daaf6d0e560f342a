// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_flags.h"

#include <boost/program_options.hpp>
#include <charconv>
#include <iostream>

namespace cua::tools {

namespace po = boost::program_options;

int32_t BenchFlags::ordinal() const {
  if (is_cpu()) return 0;
  int32_t value = -1;
  const char *const end = device.data() + device.size();
  const auto [at, error] = std::from_chars(device.data(), end, value);
  if (error != std::errc{} || at != end || value < 0) {
    throw UsageError("--device is \"" + device + "\"; cpu or the number of a GPU is needed");
  }
  return value;
}

bool parse_bench_flags(int argc, const char *const *argv, po::options_description own,
                       BenchFlags &flags) {
  own.add_options()("model", po::value(&flags.model)->value_name("DIR"),
                    "folder of the merged checkpoint")(
      "device", po::value(&flags.device)->value_name("cpu|N"), "cpu, or the number of the GPU; 0")(
      "cuda-lib", po::value(&flags.cuda_lib)->value_name("FILE"),
      "the library; else the one beside this program")(
      "threads", po::value(&flags.threads)->value_name("N"),
      "threads of the CPU library; 0 is all cores")(
      "json", po::value(&flags.json)->value_name("FILE"), "write the figures there too")(
      "help", "show this and stop");
  try {
    const auto style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::variables_map given;
    po::store(po::command_line_parser(argc, argv).options(own).positional({}).style(style).run(),
              given);
    if (given.count("help") != 0) {
      std::cout << own;
      return false;
    }
    po::notify(given);
  } catch (const po::error &error) {
    throw UsageError(error.what());
  }
  if (flags.model.empty()) throw UsageError("--model is missing; name a merged checkpoint folder");
  (void)flags.ordinal();
  return true;
}

}  // namespace cua::tools
