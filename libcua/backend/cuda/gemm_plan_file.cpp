// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gemm_plan_file.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "backend/cuda/row_bucket.h"
#include "error.h"

namespace cua::backend::cuda {
namespace {

constexpr char kFormat[] = "cua-gemm-plans/1";
constexpr uintmax_t kLargestFile = 1 << 20;  // bytes; a model of ten shapes has 15,000
constexpr uint32_t kMostWidth = 1u << 24;    // so that no size in bytes leaves 64 bits
constexpr size_t kLongestQuote = 80;         // bytes of the file in a message

// What stands in the file, as a message can hold it.
std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kLongestQuote)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kLongestQuote ? "...\"" : "\"");
}

std::optional<uint64_t> number(std::string_view text, uint64_t most) {
  uint64_t value = 0;
  const char *const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || value > most) return std::nullopt;
  return value;
}

class Lines {
 public:
  Lines(std::string_view text, const std::string &file) : rest_(text), file_(file) {}

  // The next line; empty at the end of the text.
  std::string_view next() {
    ++number_;
    const size_t length = rest_.find('\n');
    if (length == rest_.npos && !rest_.empty()) fail("has no end: the file is cut");
    const std::string_view line = rest_.substr(0, length);
    rest_.remove_prefix(std::min(rest_.size(), line.size() + 1));
    return line;
  }
  bool at_end() const { return rest_.empty(); }
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(CUA_INVALID_ARGUMENT, file_ + ": line " + std::to_string(number_) + " " + what +
                                          "; make the file with cua-bench tune, or leave it out");
  }
  // What follows `name` and a space.
  std::string_view field(std::string_view name) {
    std::string_view line = next();
    if (line.substr(0, name.size()) != name || line.substr(name.size(), 1) != " ") {
      fail("is " + quote(line) + "; " + std::string(name) + " and its value are needed");
    }
    return line.substr(name.size() + 1);
  }
  uint64_t number_field(std::string_view name, uint64_t most) {
    const std::string_view text = field(name);
    const auto value = number(text, most);
    if (!value) fail("has " + quote(text) + " for " + std::string(name));
    return *value;
  }

 private:
  std::string_view rest_;
  const std::string &file_;
  size_t number_ = 0;
};

// The numbers of a plan, in the order of its line.
struct Number {
  const char *name;
  uint32_t most;
  uint32_t &(*of)(GemmPlan &);
};
constexpr uint32_t kMost16 = std::numeric_limits<uint16_t>::max();
constexpr uint32_t kMost31 = std::numeric_limits<int32_t>::max();
constexpr uint32_t kMost32 = std::numeric_limits<uint32_t>::max();
constexpr Number kNumbers[] = {
    {"n", kMostWidth, [](GemmPlan &p) -> uint32_t & { return p.n; }},
    {"k", kMostWidth, [](GemmPlan &p) -> uint32_t & { return p.k; }},
    {"bucket", kMostPlannedRows, [](GemmPlan &p) -> uint32_t & { return p.bucket; }},
    {"rows", kMostPlannedRows, [](GemmPlan &p) -> uint32_t & { return p.rows; }},
    {"algorithm", kMost31, [](GemmPlan &p) -> uint32_t & { return p.algorithm.id; }},
    {"tile", kMost32, [](GemmPlan &p) -> uint32_t & { return p.algorithm.tile; }},
    {"stages", kMost32, [](GemmPlan &p) -> uint32_t & { return p.algorithm.stages; }},
    {"cluster", kMost16, [](GemmPlan &p) -> uint32_t & { return p.algorithm.cluster; }},
    {"swizzle", kMost32, [](GemmPlan &p) -> uint32_t & { return p.algorithm.swizzle; }},
    {"custom", kMost32, [](GemmPlan &p) -> uint32_t & { return p.algorithm.custom; }},
    {"inner", kMost16, [](GemmPlan &p) -> uint32_t & { return p.algorithm.inner; }}};
constexpr std::string_view kPlan = "plan epilogue=default";

GemmPlan parse_plan(const Lines &lines, std::string_view line) {
  if (line.substr(0, kPlan.size()) != kPlan) {
    lines.fail("is " + quote(line) + "; a line begins with " + std::string(kPlan));
  }
  line.remove_prefix(kPlan.size());
  GemmPlan plan;
  for (const Number &each : kNumbers) {
    const std::string name = std::string(" ") + each.name + "=";
    if (line.substr(0, name.size()) != name) {
      lines.fail(std::string("lacks ") + each.name + "= in its place");
    }
    line.remove_prefix(name.size());
    const std::string_view text = line.substr(0, line.find(' '));
    const auto value = number(text, each.most);
    if (!value) {
      lines.fail("has " + quote(text) + " for " + each.name + "; a whole number to " +
                 std::to_string(each.most) + " is needed");
    }
    each.of(plan) = static_cast<uint32_t>(*value);
    line.remove_prefix(text.size());
  }
  if (!line.empty()) lines.fail("goes on with " + quote(line));
  if (plan.n == 0 || plan.k == 0) lines.fail("has a weight without outputs or inputs");
  if (plan.bucket == 0 || row_bucket(plan.bucket) != plan.bucket) {
    lines.fail("has a bucket of " + std::to_string(plan.bucket) + " rows, which is none");
  }
  // More would be read and written where there is no room.
  if (plan.rows != plan.bucket &&
      (plan.rows < plan.bucket || plan.rows > kRoomRows || plan.rows % kLeastRows != 0)) {
    lines.fail("multiplies " + std::to_string(plan.rows) + " rows for a bucket of " +
               std::to_string(plan.bucket));
  }
  return plan;
}

}  // namespace

GemmPlanFile parse_gemm_plans(std::string_view text, const std::string &file) {
  Lines lines(text, file);
  if (const std::string_view format = lines.next(); format != kFormat) {
    lines.fail("is " + quote(format) + "; " + kFormat + " is the format that is known");
  }
  GemmPlanFile result;
  result.target.gpu = lines.field("gpu");
  result.target.capability = static_cast<uint32_t>(lines.number_field("capability", 10000));
  result.target.cublaslt = lines.number_field("cublaslt", std::numeric_limits<uint64_t>::max());
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;
  while (!lines.at_end()) {
    const GemmPlan plan = parse_plan(lines, lines.next());
    if (!seen.emplace(plan.n, plan.k, plan.bucket).second) {
      lines.fail("is a second plan of " + std::to_string(plan.bucket) + " rows for a weight of " +
                 std::to_string(plan.n) + " x " + std::to_string(plan.k));
    }
    result.plans.push_back(plan);
  }
  return result;
}

GemmPlanFile read_gemm_plans(const std::filesystem::path &path) {
  const auto fail = [&](const std::string &what) {
    throw Error(CUA_INVALID_ARGUMENT,
                path.string() + ": " + what + "; name a file of cua-bench tune, or leave it out");
  };
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    fail(error ? error.message() : "is not a file");
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(error.message());
  if (size > kLargestFile) fail("has " + std::to_string(size) + " bytes, too many for plans");
  std::string text(size, '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(text.data(), static_cast<std::streamsize>(size))) fail("cannot be read");
  return parse_gemm_plans(text, path.string());
}

void require_target(const GemmPlanFile &plans, const GemmPlanTarget &here,
                    const std::string &file) {
  const auto require = [&](bool holds, const std::string &there, const std::string &is) {
    if (holds) return;
    throw Error(CUA_INVALID_ARGUMENT, file + ": made for " + there + ", this is " + is +
                                          "; make one here with cua-bench tune, or leave it out");
  };
  require(plans.target.gpu == here.gpu, quote(plans.target.gpu), quote(here.gpu));
  require(plans.target.capability == here.capability,
          "compute capability (times 10) " + std::to_string(plans.target.capability),
          std::to_string(here.capability));
  require(plans.target.cublaslt == here.cublaslt,
          "cuBLASLt " + std::to_string(plans.target.cublaslt), std::to_string(here.cublaslt));
}

std::string format_gemm_plans(const GemmPlanFile &plans) {
  std::string text = std::string(kFormat) + "\ngpu " + plans.target.gpu + "\ncapability " +
                     std::to_string(plans.target.capability) + "\ncublaslt " +
                     std::to_string(plans.target.cublaslt) + "\n";
  for (GemmPlan plan : plans.plans) {
    text += kPlan;
    for (const Number &each : kNumbers) {
      text += std::string(" ") + each.name + "=" + std::to_string(each.of(plan));
    }
    text += "\n";
  }
  return text;
}

}  // namespace cua::backend::cuda
