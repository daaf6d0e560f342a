// SPDX-License-Identifier: Apache-2.0
#include <boost/program_options.hpp>
#include <cstdio>
#include <iostream>

#include "error.h"
#include "tools/export_command.h"
#include "tools/merge.h"
#include "tools/progress.h"

namespace cua::tools {

namespace po = boost::program_options;

int export_merge(int argc, const char *const *argv) {
  MergeOptions options;
  std::string base, adapter, out;
  po::options_description flags("Merges a LoRA adapter into the text model of a base checkpoint");
  flags.add_options()("base", po::value(&base)->value_name("DIR"), "the base model's folder")(
      "adapter", po::value(&adapter)->value_name("DIR"),
      "the adapter's: adapter_config.json, adapter_model.safetensors")(
      "out", po::value(&out)->value_name("DIR"), "folder to make")(
      "force", po::bool_switch(&options.force), "replace what stands there")(
      "base-revision", po::value(&options.base_revision)->value_name("COMMIT"),
      "for the marker; else from what huggingface_hub noted beside the files")(
      "adapter-revision", po::value(&options.adapter_revision)->value_name("COMMIT"), "the same")(
      "model-id", po::value(&options.model_id)->value_name("TEXT"),
      "what answers call the model; by default the worker's own name for the pinned adapter, that "
      "name with another adapter's revision, or its hash")(
      "transformers-bf16", po::bool_switch(&options.transformers_bf16),
      "round the few F32 tensors to bf16 too, as a save by Transformers in bf16 does")(
      "threads", po::value(&options.threads)->value_name("N"), "0: all cores")(
      "help", "show this and stop");
  try {
    const auto style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    const auto parsed =
        po::command_line_parser(argc, argv).options(flags).positional({}).style(style).run();
    for (const auto &option : parsed.options) {  // Boost takes -1 for the largest number
      if (option.string_key == "threads" && !option.value.empty() &&
          option.value[0].find('-') != std::string::npos) {
        throw UsageError("--threads " + option.value[0] + " is below 0");
      }
    }
    po::variables_map given;
    po::store(parsed, given);
    if (given.count("help") != 0) {
      std::cout << flags;
      return 0;
    }
    po::notify(given);
  } catch (const po::error &error) {
    throw UsageError(error.what());
  }
  if (base.empty()) throw UsageError("--base is missing; name the base model's folder");
  if (adapter.empty()) throw UsageError("--adapter is missing; name the adapter's folder");
  if (out.empty()) throw UsageError("--out is missing; name the folder to make");
  options.base = base;
  options.adapter = adapter;
  options.out = out;
  options.warn = [](const std::string &line) {
    std::fprintf(stderr, "warning: %s\n", line.c_str());
  };
  catch_stop_signals();
  try {
    const Merged merged = merge(options);
    const double gigabytes = static_cast<double>(merged.bytes) * 1e-9;
    std::printf(
        "%s: %zu tensors, %zu of them changed by the adapter, %.3f GB\n"
        "merged in %.1f s (%.0f MB/s), hashed in %.1f s, on the disk after %.1f s more\n",
        out.c_str(), merged.tensors, merged.changed, gigabytes, merged.merge_seconds,
        gigabytes * 1e3 / merged.merge_seconds, merged.hash_seconds, merged.sync_seconds);
  } catch (const Stopped &) {  // what was written is gone again
    raise_again();
  } catch (const Error &error) {
    if (error.code() == CUA_INVALID_ARGUMENT) {
      throw UsageError(std::string(error.what()) + "; name another, or add --force");
    }
    throw;
  }
  return 0;
}

}  // namespace cua::tools
