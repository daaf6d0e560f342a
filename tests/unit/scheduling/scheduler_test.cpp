// SPDX-License-Identifier: Apache-2.0
// The engine behind the ABI and the thread that scores, with the tests' own library.
#include "scheduling/scheduler.h"

#include <cstdlib>
#include <future>

#include "catch.h"

using namespace cua_server;
using scheduling::Engine;
using scheduling::EngineError;
using scheduling::Job;
using scheduling::Prompt;
using scheduling::Result;
using scheduling::Scheduler;

namespace {

// Sets a variable for the fake library as long as it lives.
class Variable {
 public:
  Variable(const char *name, const char *value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable &) = delete;
  Variable &operator=(const Variable &) = delete;

 private:
  const char *name_;
};

const Library &library() {
  static const Library library(CUA_FAKE_LIBRARY);
  return library;
}

Prompt prompt(uint32_t sum, uint32_t options) { return {{sum}, options}; }

int32_t code_of(const Result &result) {
  const auto *const error = std::get_if<EngineError>(&result);
  return error == nullptr ? int32_t{CUA_OK} : error->code();
}

// Submits a job and waits for what comes of it.
Result run(Scheduler &scheduler, std::vector<Prompt> prompts) {
  std::promise<Result> promise;
  scheduler.submit(
      {std::move(prompts), [&](Result result) { promise.set_value(std::move(result)); }});
  return promise.get_future().get();
}

}  // namespace

TEST_CASE("the engine tells what it is") {
  const Engine engine(library(), {});
  CHECK(engine.has_tokenizer());
  CHECK(engine.max_prompt_tokens() == 16384);
  CHECK(!engine.model());
  const Variable model("CUA_FAKE_MODEL", "an id"), none("CUA_FAKE_NO_TOKENIZER", "1");
  const Engine other(library(), {});
  CHECK(other.model() == "an id");
  CHECK(!other.has_tokenizer());
}

TEST_CASE("tokenising gives room as it is needed") {
  const Engine engine(library(), {});
  CHECK(engine.tokenize("").empty());
  CHECK(engine.tokenize("abcdefgh") == std::vector<uint32_t>{'a', 'e'});
  CHECK(engine.tokenize(std::string(1'000'000, 'x')).size() == 250'000);
}

TEST_CASE("an engine that does not open") {
  const Variable fail("CUA_FAKE_CREATE", "3");
  try {
    const Engine engine(library(), {});
    FAIL("it opened");
  } catch (const EngineError &error) {
    CHECK(error.code() == CUA_BAD_MODEL);
    CHECK(std::string(error.what()) == "the fake library refuses to open");
  }
}

TEST_CASE("jobs are answered, each with its own scores") {
  Engine engine(library(), {});
  Scheduler scheduler(engine);
  const Result result = run(scheduler, {prompt(7, 5), prompt(3, 26), prompt(9, 1)});
  const auto &scores = std::get<std::vector<cua_score>>(result);
  REQUIRE(scores.size() == 3);
  CHECK(scores[0].best == 2);
  CHECK(scores[1].best == 3);
  CHECK(scores[2].best == 0);
  CHECK(scores[2].probabilities[0] == 1);
}

TEST_CASE("first come, first served, from many threads") {
  Engine engine(library(), {});
  Scheduler scheduler(engine);
  std::vector<int> order;  // written on the scheduler's thread alone
  std::promise<void> last;
  const Variable slow("CUA_FAKE_CALL_US", "2000");
  for (int i = 0; i < 50; ++i) {
    scheduler.submit({{prompt(1, 2)}, [&, i](Result) {
                        order.push_back(i);
                        if (i == 49) last.set_value();
                      }});
  }
  last.get_future().wait();
  REQUIRE(order.size() == 50);
  for (int i = 0; i < 50; ++i) CHECK(order[static_cast<size_t>(i)] == i);

  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 20; ++i) {
        const Result result = run(scheduler, {prompt(t + i, 13)});
        if (std::get<std::vector<cua_score>>(result)[0].best == (t + i) % 13) ++right;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  CHECK(right == 160);
}

TEST_CASE("a failed job fails alone; a lost device stays lost") {
  Engine engine(library(), {});
  Scheduler scheduler(engine);
  {
    const Variable fail("CUA_FAKE_FAIL", "10");
    CHECK(code_of(run(scheduler, {prompt(1, 2)})) == CUA_NOT_FINITE);
  }
  CHECK(code_of(run(scheduler, {prompt(1, 2)})) == CUA_OK);
  CHECK(!scheduler.device_failure());
  {
    const Variable fail("CUA_FAKE_FAIL", "7");
    CHECK(code_of(run(scheduler, {prompt(1, 2)})) == CUA_DEVICE_FAILED);
  }
  REQUIRE(scheduler.device_failure());
  CHECK(scheduler.device_failure()->find("secret cause") != std::string::npos);
}

TEST_CASE("the end waits for what is queued") {
  Engine engine(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "1000");
  std::atomic<int> done{0};
  {
    Scheduler scheduler(engine);
    for (int i = 0; i < 30; ++i) scheduler.submit({{prompt(1, 2)}, [&](Result) { ++done; }});
  }
  CHECK(done == 30);
}
