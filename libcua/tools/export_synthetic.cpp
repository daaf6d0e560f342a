// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <atomic>
#include <boost/program_options.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "checkpoint/synthetic.h"
#include "error.h"
#include "tokenizer/tokenizer.h"
#include "tools/export_command.h"

namespace cua::tools {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

// A line that is drawn over on a terminal, nothing elsewhere.
class Progress {
 public:
  void operator()(uint64_t done, uint64_t all) {
    if (!terminal_) return;
    const auto percent = done * 100 / all;
    if (percent == shown_ && done != all) return;
    shown_ = percent;
    std::fprintf(stderr, "\r%3d %%  %.2f of %.2f GB%s", static_cast<int>(percent),
                 static_cast<double>(done) * 1e-9, static_cast<double>(all) * 1e-9,
                 done == all ? "\n" : "");
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  uint64_t shown_ = 101;
};

std::atomic<int> stop_signal{0};

// From here on SIGINT and SIGTERM only set stop_signal.
void catch_stop_signals() {
  for (const int signal : {SIGINT, SIGTERM}) {
    if (std::signal(signal, [](int caught) { stop_signal = caught; }) == SIG_IGN) {
      std::signal(signal, SIG_IGN);  // as under nohup
    }
  }
}

class Stopped : public std::exception {
 public:
  const char *what() const noexcept override { return "stopped by a signal"; }
};

}  // namespace

int export_synthetic(int argc, const char *const *argv) {
  checkpoint::SyntheticOptions options;
  std::string out, tokenizer;
  po::options_description flags(
      "Writes a checkpoint of random weights that loads like a merged one");
  flags.add_options()("shape", po::value(&options.shape)->value_name("tiny|wide|4b"),
                      "dimensions: of the small test models, or of the 4B model (8.4 GB)")(
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
  if (given.count("tokenizer") != 0) {
    const fs::path folder = tokenizer;
    options.least_vocabulary = tokenizer::Tokenizer(folder / "tokenizer.json").vocabulary();
    for (const char *name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      if (fs::exists(folder / name)) options.copies.push_back(folder / name);
    }
  }
  uint64_t bytes = 0;
  Progress progress;
  options.progress = [&](uint64_t done, uint64_t all) {
    bytes = all;
    if (stop_signal != 0) throw Stopped();
    progress(done, all);
  };
  const auto start = std::chrono::steady_clock::now();
  try {
    catch_stop_signals();
    checkpoint::write_synthetic(options);
  } catch (const Stopped &) {  // what was written is gone again
    std::signal(stop_signal, SIG_DFL);
    std::raise(stop_signal);
  } catch (const Error &error) {
    if (error.code() == CUA_INVALID_ARGUMENT) throw UsageError(error.what());
    throw;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: synthetic/%s-%llu, %.3f GB in %.1f s (%.0f MB/s)\n", out.c_str(),
              options.shape.c_str(), static_cast<unsigned long long>(options.seed),
              static_cast<double>(bytes) * 1e-9, seconds,
              static_cast<double>(bytes) * 1e-6 / seconds);
  return 0;
}

}  // namespace cua::tools
