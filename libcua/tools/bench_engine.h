// SPDX-License-Identifier: Apache-2.0
//
// An engine as any client has it: the library is opened with dlopen, and known through abi/cua.h
// alone.
#pragma once
#include <boost/json/value.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cua.h"
#include "tools/bench_flags.h"

namespace cua::tools {

// Stays open for the life of the process.
class BenchLibrary {
 public:
  // Throws std::runtime_error for a library that cannot be used.
  explicit BenchLibrary(const BenchFlags &flags);

  const std::string &path() const { return path_; }
  boost::json::value about() const;  // cua_build_info

 private:
  friend class BenchEngine;
  std::string path_;
  decltype(&cua_build_info) build_info_;
  decltype(&cua_engine_create) create_;
  decltype(&cua_engine_destroy) destroy_;
  decltype(&cua_engine_describe) describe_;
  decltype(&cua_tokenize) tokenize_;
  decltype(&cua_score_prompts) score_;
  decltype(&cua_engine_stats) stats_;
};

// Throws std::runtime_error with the library's message. The library must outlive it.
class BenchEngine {
 public:
  // struct_size, model, device and threads of `options` are set from the flags.
  BenchEngine(const BenchLibrary &library, const BenchFlags &flags, cua_engine_options options);
  ~BenchEngine();
  BenchEngine(const BenchEngine &) = delete;
  BenchEngine &operator=(const BenchEngine &) = delete;

  boost::json::value describe() const;
  // Fills ids, whose size is the capacity; gives the number of them.
  uint64_t tokenize(std::string_view text, std::span<uint32_t> ids) const;
  void score(std::span<const cua_prompt> prompts, std::span<cua_score> scores);
  cua_stats stats() const;

 private:
  const BenchLibrary &library_;
  cua_engine *engine_ = nullptr;
};

}  // namespace cua::tools
