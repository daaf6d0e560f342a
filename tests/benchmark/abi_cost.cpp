// SPDX-License-Identifier: Apache-2.0
//
// What a call of cua_score_prompts takes besides the forward pass: the call's time less the time
// inside the executor, which libcua_timed_cpu.so counts (timed_executor.cpp). Prints JSON.
//   abi_cost LIBRARY MODEL_DIR CALLS
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cua.h"

namespace {

template <class Function>
Function *symbol(void *library, const char *name) {
  void *const found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function *>(found);
}

void must(int32_t code, const cua_error &error) {
  if (code == CUA_OK) return;
  std::fprintf(stderr, "code %d: %s\n", code, error.message);
  std::exit(1);
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: abi_cost LIBRARY MODEL_DIR CALLS\n");
    return 2;
  }
  void *const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const auto create = symbol<decltype(cua_engine_create)>(library, "cua_engine_create");
  const auto destroy = symbol<decltype(cua_engine_destroy)>(library, "cua_engine_destroy");
  const auto score = symbol<decltype(cua_score_prompts)>(library, "cua_score_prompts");
  const auto read_stats = symbol<decltype(cua_engine_stats)>(library, "cua_engine_stats");
  const auto tokenize = symbol<decltype(cua_tokenize)>(library, "cua_tokenize");
  const int calls = std::max(1, std::atoi(argv[3]));

  cua_error error{};
  error.struct_size = sizeof error;
  cua_engine_options options{};
  options.struct_size = sizeof options;
  options.model_dir = argv[2];
  options.model_dir_length = std::strlen(argv[2]);
  cua_engine *engine = nullptr;
  must(create(&options, &engine, &error), error);

  const auto nanoseconds_inside = [&] {
    cua_stats stats{};
    stats.struct_size = sizeof stats;
    must(read_stats(engine, &stats, &error), error);
    return static_cast<double>(stats.scratch_bytes);
  };

  // 152 words of one token or two: about the request fixture's length.
  std::string text;
  for (int i = 0; i < 76; ++i) text += " button menu";
  std::vector<uint32_t> tokens(4096);
  uint64_t count = 0;
  must(tokenize(engine, text.data(), text.size(), tokens.data(), tokens.size(), &count, &error),
       error);

  struct Case {
    const char *name;
    uint32_t prompts;
    uint64_t ids;  // of each; 0: text
  };
  const Case cases[] = {{"one prompt of 1 id", 1, 1},       {"one prompt of 153 ids", 1, 153},
                        {"one prompt of 4,096 ids", 1, 4096}, {"16 prompts of 153 ids", 16, 153},
                        {"one prompt of text", 1, 0}};
  std::printf("{\"text_tokens\":%llu,\"cases\":[", static_cast<unsigned long long>(count));
  bool first = true;
  for (const Case &one : cases) {
    std::vector<uint32_t> ids(one.ids);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(i * 37 % 200);
    std::vector<cua_prompt> prompts(one.prompts);
    std::vector<cua_score> scores(one.prompts);
    for (uint32_t i = 0; i < one.prompts; ++i) {
      prompts[i] = {};
      prompts[i].struct_size = sizeof(cua_prompt);
      prompts[i].n_options = 5;
      if (one.ids != 0) {
        prompts[i].ids = ids.data();
        prompts[i].n_ids = ids.size();
      } else {
        prompts[i].text = text.data();
        prompts[i].text_length = text.size();
      }
      scores[i] = {};
      scores[i].struct_size = sizeof(cua_score);
    }
    std::vector<double> own, whole;
    // Long passes: fewer of them.
    const int runs = one.ids > 1000 || one.prompts > 1 ? std::max(1, calls / 20) : calls;
    for (int run = -3; run < runs; ++run) {
      const double before = nanoseconds_inside();
      const auto began = std::chrono::steady_clock::now();
      const int32_t code = score(engine, prompts.data(), one.prompts, scores.data(), &error);
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - began;
      must(code, error);
      if (run < 0) continue;
      whole.push_back(took.count());
      own.push_back(took.count() - (nanoseconds_inside() - before) / 1000);
    }
    std::printf("%s{\"name\":\"%s\",\"calls\":%d,\"own_us\":%.3f,\"own_p95_us\":%.3f,"
                "\"least_us\":%.3f,\"call_us\":%.1f}",
                first ? "" : ",", one.name, runs, quantile(own, 0.5), quantile(own, 0.95),
                quantile(own, 0), quantile(whole, 0.5));
    first = false;
  }
  std::printf("]}\n");
  destroy(engine);
  return 0;
}
