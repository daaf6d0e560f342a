// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "checkpoint/json_fields.h"
#include "error.h"
#include "tools/bench_engine.h"
#include "tools/export_command.h"
#include "tools/pinned.h"
#include "tools/progress.h"
#include "tools/verify.h"

namespace cua::tools {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
namespace po = boost::program_options;

struct Options {
  BenchFlags engine;  // of --reference
  std::vector<std::string> places;
  std::string reference;
  bool pinned = false;
  double tolerance = 0.02;
  size_t threads = 0;
};

int verify_downloads(const Options &options) {
  const bool own = options.places.size() == 2;
  const auto artifacts = read_lock(own ? options.places.front() : "");
  const fs::path folder = options.places.back();
  const PinnedResult result = verify_pinned(artifacts, folder, options.threads);
  std::printf("%s as %s, %s at %s\n", folder.c_str(), result.artifact->name.c_str(),
              result.artifact->repository.c_str(), result.artifact->revision.c_str());
  for (const std::string &note : result.notes) std::printf("note: %s\n", note.c_str());
  for (const std::string &fault : result.faults) std::printf("WRONG: %s\n", fault.c_str());
  std::printf("%zu of %zu files match, %zu are wrong, %zu were not downloaded\n", result.matching,
              result.artifact->files.size(), result.faults.size(), result.notes.size());
  return result.faults.empty() && result.matching > 0 ? 0 : 1;
}

// Lines of {"text": ..., "ids": [...], "probabilities": [...]}: a prompt as text or ids, and the
// probability of each of its options.
void verify_scores(const Options &options, const fs::path &folder) {
  std::ifstream file(options.reference);
  if (!file) throw Error(CUA_BAD_MODEL, options.reference + ": cannot be read");
  BenchFlags flags = options.engine;
  flags.model = folder.string();
  const BenchLibrary library(flags);
  BenchEngine engine(library, flags, {});
  double worst = 0;
  size_t prompts = 0, clear = 0;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = options.reference + ", line " + std::to_string(number);
    const json::object object = checkpoint::parse_json_object(line, where);
    const checkpoint::Fields fields(object, where);
    std::vector<double> wanted;
    if (const json::array *const array = fields.array("probabilities")) {
      for (const json::value &p : *array) {
        if (!p.is_number()) fields.fail("probabilities", "holds what is not a number");
        wanted.push_back(p.to_number<double>());
      }
    }
    if (wanted.empty() || wanted.size() > CUA_MAX_OPTIONS) {
      fields.fail("probabilities", "has no entries, or more than 26");
    }
    std::vector<uint32_t> ids;
    if (const json::array *const array = fields.array("ids")) {
      for (const json::value &id : *array) {
        if (!id.is_int64() || id.as_int64() < 0 || id.as_int64() > UINT32_MAX) {
          fields.fail("ids", "holds what is not a token id");
        }
        ids.push_back(static_cast<uint32_t>(id.as_int64()));
      }
    } else if (const auto text = fields.text("text")) {
      ids.resize(text->size() * 3 + 1);
      ids.resize(engine.tokenize(*text, ids));
    }
    if (ids.empty()) fields.fail("text", "and \"ids\" are missing or empty; one is needed");
    cua_prompt prompt{};
    prompt.struct_size = sizeof prompt;
    prompt.n_options = static_cast<uint32_t>(wanted.size());
    prompt.ids = ids.data();
    prompt.n_ids = ids.size();
    cua_score score{};
    score.struct_size = sizeof score;
    engine.score({&prompt, 1}, {&score, 1});
    if (stop_asked()) throw Stopped();
    size_t best = 0;
    double first = -1, second = -1;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double difference = std::abs(score.probabilities[i] - wanted[i]);
      if (!(difference <= worst)) worst = difference;
      if (!(difference <= options.tolerance)) {
        throw Error(CUA_BAD_MODEL, where + ": option " + std::to_string(i) + " has probability " +
                                       std::to_string(score.probabilities[i]) +
                                       ", the reference says " + std::to_string(wanted[i]) +
                                       "; more than " + std::to_string(options.tolerance) +
                                       " apart (--tolerance)");
      }
      if (wanted[i] > first) {
        second = first;
        first = wanted[i];
        best = i;
      } else if (wanted[i] > second) {
        second = wanted[i];
      }
    }
    ++prompts;
    if (first - second < 0.05) continue;
    ++clear;
    if (score.best != best) {
      throw Error(CUA_BAD_MODEL, where + ": option " + std::to_string(score.best) +
                                     " is on top, the reference says " + std::to_string(best));
    }
  }
  if (prompts == 0) throw Error(CUA_BAD_MODEL, options.reference + ": has no prompts");
  std::printf(
      "scores: %zu prompts within %.5f of the reference (largest difference %.5f), the same "
      "option on top of the %zu with a margin of 0.05\n",
      prompts, options.tolerance, worst, clear);
}

}  // namespace

int export_verify(int argc, const char *const *argv) {
  Options options;
  options.engine.device = "cpu";
  po::options_description flags(
      "Examines a merged folder, cua-export verify DIR, or a download,\n"
      "cua-export verify --pinned [LOCK-FILE] DIR");
  flags.add_options()("pinned", po::bool_switch(&options.pinned),
                      "compare a download with a lock file; without one with the pinned downloads "
                      "of this version")(
      "reference", po::value(&options.reference)->value_name("FILE"),
      "prompts and probabilities as JSON lines, to be scored as well")(
      "tolerance", po::value(&options.tolerance)->value_name("P"),
      "how far a probability may be from the reference; 0.02")(
      "device", po::value(&options.engine.device)->value_name("cpu|N"),
      "for --reference: cpu, or the number of a GPU; cpu")(
      "cuda-lib", po::value(&options.engine.cuda_lib)->value_name("FILE"),
      "for --reference: the library; else the one beside this program")(
      "threads", po::value(&options.threads)->value_name("N"), "0: all cores")(
      "help", "show this and stop");
  po::options_description all = flags;
  all.add_options()("place", po::value(&options.places));
  po::positional_options_description places;
  places.add("place", 2);
  try {
    const auto style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::variables_map given;
    po::store(
        po::command_line_parser(argc, argv).options(all).positional(places).style(style).run(),
        given);
    if (given.count("help") != 0) {
      std::cout << flags;
      return 0;
    }
    po::notify(given);
  } catch (const po::error &error) {
    throw UsageError(error.what());
  }
  if (options.places.empty()) throw UsageError("name a folder");
  if (!options.pinned && options.places.size() > 1) {
    throw UsageError("one folder is needed; a lock file goes with --pinned");
  }
  if (options.pinned && !options.reference.empty()) {
    throw UsageError("--reference is for a merged folder, --pinned for a download");
  }
  if (!(options.tolerance >= 0)) throw UsageError("--tolerance is not a number of 0 or more");
  (void)options.engine.ordinal();
  catch_stop_signals();
  try {
    if (options.pinned) return verify_downloads(options);
    const fs::path folder = options.places.front();
    const auto tell = [](const std::string &line) { std::printf("%s\n", line.c_str()); };
    verify_folder(folder, options.threads, tell);
    if (!options.reference.empty()) verify_scores(options, folder);
    std::printf("%s: good\n", folder.c_str());
  } catch (const Stopped &) {
    raise_again();
  }
  return 0;
}

}  // namespace cua::tools
