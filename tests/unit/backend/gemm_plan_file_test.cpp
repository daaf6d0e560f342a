// SPDX-License-Identifier: Apache-2.0
// Files of GEMM plans: what is written is read back, and everything else is refused with a reason.
#include "backend/cuda/gemm_plan_file.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <tuple>

#include "backend/cuda/row_bucket.h"
#include "catch.h"
#include "error.h"

using namespace cua::backend::cuda;

namespace {

GemmPlanFile example() {
  GemmPlanFile file;
  file.target.gpu = "NVIDIA H200";
  file.target.capability = 90;
  file.target.cublaslt = 130100;
  constexpr uint32_t kMost = 4294967295;
  file.plans.push_back({18432, 2560, 64, 64, {66, 15, 8, 3, 1, 2, 0}});
  file.plans.push_back({18432, 2560, 192, 256, {67, kMost, kMost, 65535, kMost, kMost, 65535}});
  file.plans.push_back({2560, 9216, 64, 256, {}});
  file.plans.push_back({2560, 9216, 2048, 2048, {2147483647, 1, 2, 3, 4, 5, 6}});
  return file;
}
const GemmPlanFile kFile = example();

const std::string kHead = "cua-gemm-plans/1\ngpu NVIDIA H200\ncapability 90\ncublaslt 130100\n";
const std::string kPlan =
    "plan epilogue=default n=8 k=16 bucket=64 rows=128 algorithm=66 tile=1 stages=2 cluster=3 "
    "swizzle=1 custom=0 inner=0\n";

// The message; empty where nothing is refused.
template <class Body>
std::string refusal(const Body &body) {
  try {
    body();
    return "";
  } catch (const cua::Error &error) {
    CHECK(error.code() == CUA_INVALID_ARGUMENT);
    return error.what();
  }
}

std::string parsing(const std::string &text) {
  return refusal([&] { parse_gemm_plans(text, "the-file"); });
}

std::string with(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("plans are written and read back") {
  const std::string text = format_gemm_plans(kFile);
  const GemmPlanFile read = parse_gemm_plans(text, "the-file");
  CHECK(read.target.gpu == "NVIDIA H200");
  CHECK(read.target.capability == 90);
  CHECK(read.target.cublaslt == 130100);
  CHECK((read.plans == kFile.plans));
  CHECK(format_gemm_plans(read) == text);
  const GemmPlan plan = parse_gemm_plans(kHead + kPlan, "the-file").plans.at(0);
  CHECK((plan == GemmPlan{8, 16, 64, 128, {66, 1, 2, 3, 1, 0, 0}}));
  CHECK(parse_gemm_plans(kHead, "the-file").plans.empty());

  const std::string path = "cua_gemm_plan_file_test";
  std::ofstream(path, std::ios::binary) << text;
  CHECK((read_gemm_plans(path).plans == kFile.plans));
  std::remove(path.c_str());
}

TEST_CASE("plans for another card or cuBLASLt are refused, and both sides named") {
  const auto requiring = [](const GemmPlanTarget &here) {
    return refusal([&] { require_target(kFile, here, "the-file"); });
  };
  CHECK(requiring(kFile.target).empty());
  for (const auto &[here, there, is] :
       {std::tuple{GemmPlanTarget{"NVIDIA H100", 90, 130100}, "NVIDIA H200", "NVIDIA H100"},
        std::tuple{GemmPlanTarget{"NVIDIA H200", 100, 130100}, "90", "100"},
        std::tuple{GemmPlanTarget{"NVIDIA H200", 90, 130101}, "130100", "130101"}}) {
    const std::string message = requiring(here);
    CAPTURE(message);
    CHECK(message.find("the-file") == 0);
    CHECK(message.find(there) != message.npos);
    CHECK(message.find(is) != message.npos);
  }
}

TEST_CASE("a file that is none is refused") {
  const std::string path = "cua_gemm_plan_file_test";
  const auto reading = [](const std::string &name) {
    return refusal([&] { read_gemm_plans(name); });
  };
  CHECK(reading("/no/such/file").find("/no/such/file") == 0);
  CHECK(reading("/").find("not a file") != std::string::npos);
  CHECK(reading("/dev/zero").find("not a file") != std::string::npos);
  std::ofstream(path, std::ios::binary) << std::string((1 << 20) + 1, '\n');
  CHECK(reading(path).find("too many") != std::string::npos);
  std::ofstream(path, std::ios::binary).flush();
  CHECK(reading(path).find("line 1") != std::string::npos);
  std::remove(path.c_str());
}

TEST_CASE("broken plans are refused with the line and a reason") {
  const std::string good = kHead + kPlan;
  REQUIRE(parsing(good).empty());
  for (const auto &[text, line, reason] : std::vector<std::tuple<std::string, int, std::string>>{
           {"", 1, "cua-gemm-plans/1"},
           {"\n", 1, "cua-gemm-plans/1"},
           {std::string(3, '\0') + "\n", 1, "cua-gemm-plans/1"},
           {"{\"format\": \"cua-gemm-plans/1\"}\n", 1, "cua-gemm-plans/1"},
           {with(good, "plans/1", "plans/2"), 1, "cua-gemm-plans/2"},
           {with(good, "plans/1", "plans/1 "), 1, "cua-gemm-plans/1"},
           {with(good, "plans/1", "plans/1\r"), 1, "cua-gemm-plans/1"},
           {with(good, "plans/1\n", "plans/1"), 1, "cua-gemm-plans/1"},
           {with(good, "gpu ", "gpus "), 2, "gpu"},
           {with(good, "gpu NVIDIA H200\n", ""), 2, "gpu"},
           {with(good, "90", "9.0"), 3, "9.0"},
           {with(good, "90", "10001"), 3, "10001"},
           {with(good, "130100", ""), 4, "cublaslt"},
           {with(good, "130100", "-1"), 4, "-1"},
           {with(good, "130100", "18446744073709551616"), 4, "18446744073709551616"},
           {"cua-gemm-plans/1\ngpu x\n", 3, "capability"},
           {kHead + "\n" + kPlan, 5, "begins with plan"},
           {good + "# more\n", 6, "begins with plan"},
           {good.substr(0, good.size() - 1), 5, "cut"},
           {good + kPlan, 6, "second plan"},
           {with(good, "default", "gelu"), 5, "epilogue=default"},
           {with(good, "n=8", "n=0"), 5, "without outputs"},
           {with(good, "k=16", "k=0"), 5, "without outputs"},
           {with(good, "n=8", "n=16777217"), 5, "16777217"},
           {with(good, "n=8 k=16", "k=16 n=8"), 5, "n="},
           {with(good, "k=16 ", ""), 5, "k="},
           {with(good, "k=16", "k=16 k=16"), 5, "bucket="},
           {with(good, "k=16", "k=+16"), 5, "+16"},
           {with(good, "k=16", "k=0x10"), 5, "0x10"},
           {with(good, "k=16", "k= 16"), 5, "for k"},
           {with(good, "k=16", "k=1e3"), 5, "1e3"},
           {with(good, "k=16", "k=" + std::string(1000, '9')), 5, "..."},
           {with(good, "bucket=64", "bucket=0"), 5, "bucket"},
           {with(good, "bucket=64", "bucket=65"), 5, "bucket"},
           {with(good, "bucket=64", "bucket=576"), 5, "bucket"},
           {with(good, "bucket=64", "bucket=4096"), 5, "bucket"},
           {with(good, "rows=128", "rows=0"), 5, "multiplies 0 rows"},
           {with(good, "rows=128", "rows=65"), 5, "multiplies 65 rows"},
           {with(good, "rows=128", "rows=320"), 5, "multiplies 320 rows"},
           {with(good, "rows=128", "rows=4294967295"), 5, "4294967295"},
           {with(with(good, "bucket=64", "bucket=256"), "rows=128", "rows=192"), 5, "192 rows"},
           {with(good, "algorithm=66", "algorithm=2147483648"), 5, "2147483648"},
           {with(good, "algorithm=66", "algorithm=-1"), 5, "-1"},
           {with(good, "tile=1", "tile=4294967296"), 5, "4294967296"},
           {with(good, "cluster=3", "cluster=65536"), 5, "65536"},
           {with(good, "inner=0", "inner=65536"), 5, "65536"},
           {with(good, "inner=0", "inner="), 5, "inner"},
           {with(good, "inner=0", "inner=0 "), 5, "goes on"},
           {with(good, "inner=0", "inner=0 split=2"), 5, "goes on"},
           {with(good, "inner=0", "inner=0\r"), 5, "for inner"},
           {with(good, "inner=0", std::string("inner=\0", 7)), 5, "for inner"},
           {with(good, "n=8", "n=\xff\xfe"), 5, "for n"}}) {
    const std::string message = parsing(text);
    CAPTURE(text, message);
    CHECK(message.find("the-file: line " + std::to_string(line) + " ") == 0);
    CHECK(message.find(reason) != message.npos);
    CHECK(message.size() < 400);
    for (const char c : message) CHECK((c >= ' ' && c <= '~'));
  }
}

// Whatever is accepted keeps within the room there is and comes back as it was written.
TEST_CASE("cut and changed files are refused or mean what they say") {
  const std::string good = format_gemm_plans(kFile);
  size_t accepted = 0;
  const auto try_text = [&](const std::string &text) {
    GemmPlanFile file;
    if (!refusal([&] { file = parse_gemm_plans(text, "the-file"); }).empty()) return;
    ++accepted;
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> shapes;
    for (const GemmPlan &plan : file.plans) {
      if (row_bucket(plan.bucket) != plan.bucket || plan.rows < plan.bucket ||
          plan.rows > std::max(plan.bucket, kRoomRows) || plan.n == 0 || plan.k == 0 ||
          !shapes.emplace(plan.n, plan.k, plan.bucket).second) {
        FAIL(text);
      }
    }
    if (!(parse_gemm_plans(format_gemm_plans(file), "again").plans == file.plans)) FAIL(text);
  };
  for (size_t length = 0; length < good.size(); ++length) try_text(good.substr(0, length));
  CHECK(accepted == kFile.plans.size());  // cut where a plan ends, or before the first
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (uint32_t change = 0; change <= random() % 3; ++change) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, 1, "0123456789 =\n-"[random() % 14]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 64));
      }
    }
    try_text(text);
  }
  CHECK(accepted > 100);
}
