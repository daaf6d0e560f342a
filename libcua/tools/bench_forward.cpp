// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "tools/bench_command.h"
#include "tools/bench_engine.h"
#include "tools/bench_measure.h"
#include "tools/split.h"

namespace cua::tools {
namespace {

namespace po = boost::program_options;

struct Options {
  BenchFlags flags;
  std::vector<uint32_t> lengths;
  uint32_t graph_mode = CUA_GRAPH_OFF;
  std::string graph = "off", tokens = "64,153,218,512";
  uint32_t batch = 1, runs = 10, warm_ups = 3;
  uint64_t seed = 1;
  bool split = false;
};

bool parse(int argc, const char *const *argv, Options &options) {
  po::options_description own("Times forward passes over random token ids");
  own.add_options()("tokens", po::value(&options.tokens)->value_name("N,N,..."),
                    "prompt lengths; 64,153,218,512")(
      "batch", po::value(&options.batch)->value_name("N"), "prompts of a call, in one pass; 1")(
      "graph", po::value(&options.graph)->value_name("off|exact|bucket"), "CUDA graphs; off")(
      "runs", po::value(&options.runs)->value_name("N"), "timed calls; 10")(
      "warm-ups", po::value(&options.warm_ups)->value_name("N"),
      "calls before those, the first included; 3")(
      "split", po::bool_switch(&options.split),
      "then every operation on its own, with what it achieves")(
      "seed", po::value(&options.seed)->value_name("N"), "of the random ids; 1");
  if (!parse_bench_flags(argc, argv, own, options.flags)) return false;
  options.lengths = parse_lengths(options.tokens);
  static constexpr const char *kModes[] = {"off", "exact", "bucket"};
  const auto *const mode = std::find(std::begin(kModes), std::end(kModes), options.graph);
  if (mode == std::end(kModes)) {
    throw UsageError("--graph is \"" + options.graph + "\"; off, exact or bucket is needed");
  }
  options.graph_mode = static_cast<uint32_t>(mode - kModes);
  require_within("--batch", options.batch, 1, 4096);
  require_within("--runs", options.runs, 1, 1000000);
  require_within("--warm-ups", options.warm_ups, 1, 1000000);
  return true;
}

// One call's prompts: new random ids for each, so that no run repeats another.
class Prompts {
 public:
  Prompts(uint32_t batch, uint32_t tokens, uint32_t vocabulary, uint64_t seed)
      : random_(seed * 1000003 + tokens),
        id_(0, vocabulary - 1),
        ids_(size_t{batch} * tokens),
        prompts_(batch) {
    for (uint32_t i = 0; i < batch; ++i) {
      prompts_[i].struct_size = sizeof prompts_[i];
      prompts_[i].n_options = CUA_MAX_OPTIONS;
      prompts_[i].ids = ids_.data() + size_t{i} * tokens;
      prompts_[i].n_ids = tokens;
    }
  }
  std::span<const cua_prompt> next() {
    for (uint32_t &id : ids_) id = id_(random_);
    return prompts_;
  }

 private:
  std::mt19937_64 random_;
  std::uniform_int_distribution<uint32_t> id_;
  std::vector<uint32_t> ids_;
  std::vector<cua_prompt> prompts_;
};

boost::json::object measure(BenchEngine &engine, const Options &options, uint32_t tokens,
                            uint32_t vocabulary) {
  Prompts prompts(options.batch, tokens, vocabulary, options.seed);
  std::vector<cua_score> scores(options.batch);
  for (cua_score &score : scores) score.struct_size = sizeof score;
  const auto call = [&] {
    const auto next = prompts.next();
    return seconds_of([&] { engine.score(next, scores); });
  };
  const double first = call();
  for (uint32_t i = 1; i < options.warm_ups; ++i) call();
  const uint64_t forwards_before = engine.stats().forwards;
  std::vector<double> seconds;
  uint32_t replayed = 0;
  for (uint32_t i = 0; i < options.runs; ++i) {
    seconds.push_back(call());
    if ((scores.front().flags & CUA_SCORE_REPLAYED) != 0) ++replayed;
  }
  const cua_stats stats = engine.stats();
  const Spread spread = spread_of(seconds);
  const double rate = static_cast<double>(options.batch) * tokens / spread.median;
  std::printf("%7u %6u %11.3f %11.3f %11.3f %11.3f %11.0f %9u/%u\n", tokens, options.batch,
              first * 1e3, spread.median * 1e3, spread.least * 1e3, spread.p95 * 1e3, rate,
              replayed, options.runs);
  std::fflush(stdout);
  return {
      {"tokens", tokens},
      {"first_s", first},
      {"median_s", spread.median},
      {"min_s", spread.least},
      {"p95_s", spread.p95},
      {"tokens_per_s", rate},
      {"forwards_per_call", static_cast<double>(stats.forwards - forwards_before) / options.runs},
      {"replayed", replayed},
      {"scratch_bytes", stats.scratch_bytes},
      {"device_bytes", stats.device_bytes},
      {"peak_resident_bytes", peak_resident_bytes()},
      {"runs_s", boost::json::array(seconds.begin(), seconds.end())}};
}

}  // namespace

void bench_forward(int argc, const char *const *argv) {
  Options options;
  if (!parse(argc, argv, options)) return;
  const BenchLibrary library(options.flags);
  const uint32_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  cua_engine_options engine_options{};
  engine_options.max_prompt_tokens = std::max(longest, 16384u);
  engine_options.graph_mode = options.graph_mode;
  engine_options.log = [](void *, int32_t, const char *message, uint64_t length) {
    std::printf("%.*s\n", static_cast<int>(length), message);
  };
  // One pass a call.
  const uint64_t rows = uint64_t{longest} * options.batch;
  if (options.batch > 1) {
    if (rows > UINT32_MAX) throw UsageError("--batch times --tokens is beyond 32 bits");
    engine_options.max_batch_tokens = static_cast<uint32_t>(rows);
  }
  std::unique_ptr<BenchEngine> engine;
  const double load = seconds_of(
      [&] { engine = std::make_unique<BenchEngine>(library, options.flags, engine_options); });
  const boost::json::value description = engine->describe();
  const auto vocabulary = description.at("vocabulary").to_number<uint32_t>();
  const uint64_t own = own_bytes();
  std::printf("%s, graphs %s, loaded in %.2f s, %.3f GB of memory beside mapped files\n",
              description.at("device").as_string().c_str(), options.graph.c_str(), load,
              static_cast<double>(own) * 1e-9);
  std::printf("%7s %6s %11s %11s %11s %11s %11s %11s\n", "tokens", "batch", "first ms", "median ms",
              "min ms", "p95 ms", "tokens/s", "replayed");
  boost::json::array results;
  for (const uint32_t tokens : options.lengths) {
    results.push_back(measure(*engine, options, tokens, vocabulary));
  }
  engine.reset();
  boost::json::value split;
  if (options.split) {
    SplitRequest request;
    request.model = options.flags.model;
    request.device = options.flags.ordinal();
    request.threads = options.flags.threads;
    request.lengths = options.lengths;
    request.batch = options.batch;
    request.runs = options.runs;
    request.seed = options.seed;
    split = bench_split(options.flags, request);
  }
  std::printf("peak resident set %.3f GB\n", static_cast<double>(peak_resident_bytes()) * 1e-9);
  write_json(options.flags.json, {{"library", library.about()},
                                  {"engine", description},
                                  {"graph", options.graph},
                                  {"batch", options.batch},
                                  {"runs", options.runs},
                                  {"warm_ups", options.warm_ups},
                                  {"seed", options.seed},
                                  {"load_s", load},
                                  {"own_bytes", own},
                                  {"peak_resident_bytes", peak_resident_bytes()},
                                  {"results", results},
                                  {"split", split}});
}

}  // namespace cua::tools
