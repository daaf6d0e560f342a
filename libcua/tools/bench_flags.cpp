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

std::vector<uint32_t> parse_lengths(const std::string &tokens) {
  std::vector<uint32_t> lengths;
  for (const char *at = tokens.data(), *end = at + tokens.size();; ++at) {
    uint32_t length = 0;
    const auto [next, error] = std::from_chars(at, end, length);
    if (error != std::errc{} || length == 0 || (next != end && *next != ',')) {
      throw UsageError("--tokens is \"" + tokens +
                       "\"; lengths of at least 1 with commas between them are needed");
    }
    lengths.push_back(length);
    at = next;
    if (at == end) return lengths;
  }
}

void require_within(const char *name, uint32_t value, uint32_t least, uint32_t most) {
  if (value >= least && value <= most) return;
  throw UsageError(std::string(name) + " is " + std::to_string(value) + "; " +
                   std::to_string(least) + " to " + std::to_string(most) + " are allowed");
}

void require_gpu(const BenchFlags &flags, const std::string &command) {
  if (flags.is_cpu()) throw UsageError("--device is cpu; " + command + " needs a GPU");
  if (!flags.cuda_lib.empty()) {
    throw UsageError("--cuda-lib: " + command + " looks inside the CUDA backend of its own build");
  }
}

}  // namespace cua::tools
