// SPDX-License-Identifier: Apache-2.0
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>

#include "checkpoint/synthetic.h"
#include "error.h"
#include "tokenizer/tokenizer.h"
#include "tools/export_command.h"
#include "tools/progress.h"

namespace cua::tools {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

}  // namespace

int export_synthetic(int argc, const char *const *argv) {
  checkpoint::SyntheticOptions options;
  std::string out, tokenizer;
  std::string layout;
  bool adapter = false;
  po::options_description flags(
      "Writes a checkpoint of random weights: one that loads like a merged one, or what a merge "
      "begins from");
  flags.add_options()("shape", po::value(&options.shape)->value_name("tiny|wide|4b"),
                      "dimensions: of the small test models, or of the 4B model (8.4 GB)")(
      "layout", po::value(&layout)->value_name("merged|public")->default_value("merged"),
      "public: that of the base model, with vision and prediction tensors and no marker")(
      "adapter", po::bool_switch(&adapter), "a LoRA adapter for such a model instead")(
      "seed", po::value(&options.seed)->value_name("N")->default_value(1), "of the weights")(
      "tokenizer", po::value(&tokenizer)->value_name("DIR"),
      "folder of tokenizer.json, to be copied in")("out", po::value(&out)->value_name("DIR"),
                                                   "folder to make")(
      "threads", po::value(&options.threads)->value_name("N")->default_value(0), "0: all cores")(
      "help", "show this and stop");
  po::variables_map given;
  try {
    const auto parsed = po::command_line_parser(argc, argv).options(flags).positional({}).run();
    for (const auto &option : parsed.options) {  // Boost takes -1 for the largest number
      const bool number = option.string_key == "seed" || option.string_key == "threads";
      if (number && !option.value.empty() && option.value[0].find('-') != std::string::npos) {
        throw UsageError("--" + option.string_key + " " + option.value[0] + " is below 0");
      }
    }
    po::store(parsed, given);
    if (given.count("help") != 0) {
      std::cout << flags;
      return 0;
    }
    po::notify(given);
  } catch (const po::error &error) {
    throw UsageError(error.what());
  }
  if (options.shape.empty()) throw UsageError("--shape is missing; use tiny, wide or 4b");
  if (out.empty()) throw UsageError("--out is missing; name the folder to make");
  options.out = out;
  if (layout != "merged" && layout != "public") {
    throw UsageError("--layout is \"" + layout + "\"; merged or public is needed");
  }
  using checkpoint::SyntheticKind;
  if (layout == "public") options.kind = SyntheticKind::base;
  if (adapter) options.kind = SyntheticKind::adapter;
  if (adapter && given.count("tokenizer") != 0) {
    throw UsageError("--tokenizer is for a model, not for an --adapter");
  }
  if (given.count("tokenizer") != 0) {
    const fs::path folder = tokenizer;
    options.least_vocabulary = tokenizer::Tokenizer(folder / "tokenizer.json").vocabulary();
    for (const char *name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      if (fs::exists(folder / name)) options.copies.push_back(folder / name);
    }
  }
  uint64_t bytes = 0;
  std::optional<Progress> progress;
  options.progress = [&](uint64_t done, uint64_t all) {
    if (!progress) progress.emplace("writing", all);
    progress->add(done - bytes);
    bytes = done;
  };
  const auto start = std::chrono::steady_clock::now();
  try {
    catch_stop_signals();
    checkpoint::write_synthetic(options);
    progress.reset();
  } catch (const Stopped &) {  // what was written is gone again
    progress.reset();
    raise_again();
  } catch (const Error &error) {
    if (error.code() == CUA_INVALID_ARGUMENT) throw UsageError(error.what());
    throw;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: %s %s-%llu, %.3f GB in %.1f s (%.0f MB/s)\n", out.c_str(),
              adapter              ? "adapter"
              : layout == "public" ? "base"
                                   : "synthetic",
              options.shape.c_str(), static_cast<unsigned long long>(options.seed),
              static_cast<double>(bytes) * 1e-9, seconds,
              static_cast<double>(bytes) * 1e-6 / seconds);
  return 0;
}

}  // namespace cua::tools
