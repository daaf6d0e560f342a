// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tools/bench_command.h"
#include "tools/bench_engine.h"
#include "tools/bench_measure.h"

namespace cua::tools {
namespace {

namespace po = boost::program_options;

std::string read_file(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error("cannot read " + path);
  if (content.empty()) throw std::runtime_error(path + " is empty");
  return content;
}

boost::json::object show(const char *name, const std::vector<double> &seconds, size_t bytes) {
  const Spread spread = spread_of(seconds);
  const double rate = static_cast<double>(bytes) * 1e-6 / spread.median;
  std::printf("%-5s %7zu %12.1f %12.1f %12.1f %9.2f\n", name, seconds.size(), spread.median * 1e6,
              spread.least * 1e6, spread.p95 * 1e6, rate);
  return {{"median_s", spread.median},
          {"min_s", spread.least},
          {"p95_s", spread.p95},
          {"mb_per_s", rate},
          {"runs_s", boost::json::array(seconds.begin(), seconds.end())}};
}

}  // namespace

void bench_tokenize(int argc, const char *const *argv) {
  BenchFlags flags;
  std::string path;
  uint32_t runs = 20, cold_runs = 3;
  po::options_description own("Times cua_tokenize over a file, taken as one prompt");
  own.add_options()("file", po::value(&path)->value_name("FILE"), "UTF-8 text")(
      "runs", po::value(&runs)->value_name("N"), "timed calls with a warm cache; 20")(
      "cold-runs", po::value(&cold_runs)->value_name("N"),
      "engines made anew, of each the first call; 3");
  if (!parse_bench_flags(argc, argv, own, flags)) return;
  if (path.empty()) throw UsageError("--file is missing; name a text");
  if (runs == 0 || cold_runs == 0) throw UsageError("--runs and --cold-runs are at least 1");

  const BenchLibrary library(flags);
  const std::string text = read_file(path);
  // Never more ids than bytes after NFC, which at most triples a text.
  std::vector<uint32_t> ids(3 * text.size());
  std::unique_ptr<BenchEngine> engine;
  uint64_t tokens = 0;
  const auto call = [&] { return seconds_of([&] { tokens = engine->tokenize(text, ids); }); };
  std::vector<double> load, cold, warm;
  for (uint32_t i = 0; i < cold_runs; ++i) {
    engine.reset();
    load.push_back(seconds_of(
        [&] { engine = std::make_unique<BenchEngine>(library, flags, cua_engine_options{}); }));
    cold.push_back(call());
  }
  for (uint32_t i = 0; i < runs; ++i) warm.push_back(call());
  std::printf("%zu bytes, %llu tokens, %.2f bytes a token, loaded in %.2f s\n", text.size(),
              static_cast<unsigned long long>(tokens),
              static_cast<double>(text.size()) / static_cast<double>(tokens),
              spread_of(load).median);
  std::printf("%-5s %7s %12s %12s %12s %9s\n", "cache", "calls", "median us", "min us", "p95 us",
              "MB/s");
  const boost::json::object cold_figures = show("cold", cold, text.size());
  const boost::json::object warm_figures = show("warm", warm, text.size());
  write_json(flags.json, {{"library", library.about()},
                          {"engine", engine->describe()},
                          {"bytes", text.size()},
                          {"tokens", tokens},
                          {"load_s", spread_of(load).median},
                          {"cold", cold_figures},
                          {"warm", warm_figures},
                          {"peak_resident_bytes", peak_resident_bytes()}});
}

}  // namespace cua::tools
