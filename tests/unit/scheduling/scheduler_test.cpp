// SPDX-License-Identifier: Apache-2.0
// The engine behind the ABI and the thread that scores, with the tests' own library.
#include "scheduling/scheduler.h"

#include <cstdlib>
#include <future>
#include <latch>
#include <memory>

#include "catch.h"

using namespace cua_server;
using scheduling::Engine;
using scheduling::EngineError;
using scheduling::Job;
using scheduling::Prompt;
using scheduling::Result;
using scheduling::Scheduler;
using scheduling::SchedulerOptions;

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

// Passes of one prompt each, or of so many tokens.
SchedulerOptions passes_of(bool batch, uint32_t tokens = 0) {
  SchedulerOptions options;
  options.batch = batch;
  options.max_batch_tokens = tokens;
  return options;
}

SchedulerOptions room_for(uint64_t questions, uint64_t tokens) {
  SchedulerOptions options;
  options.queue_questions = questions;
  options.queue_tokens = tokens;
  return options;
}

std::unique_ptr<Scheduler> scheduler_of(Engine &engine, const SchedulerOptions &options = {}) {
  Engine *const engines[] = {&engine};
  return std::make_unique<Scheduler>(engines, options);
}

int32_t code_of(const Result &result) {
  const auto *const error = std::get_if<EngineError>(&result);
  return error == nullptr ? int32_t{CUA_OK} : error->code();
}

// Submits a job and waits for what comes of it.
Result run(Scheduler &scheduler, std::vector<Prompt> prompts) {
  std::promise<Result> promise;
  scheduler.submit({std::move(prompts), [&](Result result, scheduling::Timing) {
                      promise.set_value(std::move(result));
                    }});
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
  const auto scheduler_owner = scheduler_of(engine);
  Scheduler &scheduler = *scheduler_owner;
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
  const auto scheduler_owner = scheduler_of(engine);
  Scheduler &scheduler = *scheduler_owner;
  std::vector<int> order;  // written on the scheduler's thread alone
  std::promise<void> last;
  const Variable slow("CUA_FAKE_CALL_US", "2000");
  for (int i = 0; i < 50; ++i) {
    scheduler.submit({{prompt(1, 2)}, [&, i](Result, scheduling::Timing) {
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
  const auto scheduler_owner = scheduler_of(engine);
  Scheduler &scheduler = *scheduler_owner;
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

TEST_CASE("what waits together is scored together, up to the limit of a pass") {
  Engine engine(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "150000");
  for (const auto &[options, passes] : {std::pair<SchedulerOptions, uint64_t>{{}, 2},
                                        {passes_of(false), 13},
                                        {passes_of(true, 4), 4}}) {
    const uint64_t before = engine.stats().forwards;
    std::atomic<int> done{0};
    {
      const auto scheduler = scheduler_of(engine, options);
      scheduler->submit({{prompt(1, 2)}, [&](Result, scheduling::Timing) { ++done; }});
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // that one is on its way
      for (int i = 0; i < 12; ++i)
        scheduler->submit({{prompt(1, 2)}, [&](Result, scheduling::Timing) { ++done; }});
    }
    CHECK(done == 13);
    CHECK(engine.stats().forwards - before == passes);
  }
}

TEST_CASE("a request of many questions holds nobody up") {
  Engine engine(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "3000");
  for (const bool batch : {true, false}) {
    std::vector<int> order;
    {
      const auto scheduler = scheduler_of(engine, passes_of(batch, 4));
      scheduler->submit({std::vector<Prompt>(64, prompt(1, 2)),
                         [&](Result, scheduling::Timing) { order.push_back(0); }});
      for (int i = 1; i <= 3; ++i) {
        scheduler->submit(
            {{prompt(1, 2)}, [&, i](Result, scheduling::Timing) { order.push_back(i); }});
      }
    }
    CHECK(order == std::vector<int>{1, 2, 3, 0});
  }
}

TEST_CASE("who leaves the queue costs nothing, and nobody else anything") {
  Engine engine(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "150000");
  const uint64_t before = engine.stats().prompts;
  std::atomic<int> dropped{0}, answered{0};
  {
    const auto scheduler = scheduler_of(engine);
    const auto count = [&](Result result, scheduling::Timing) {
      ++(std::holds_alternative<scheduling::Dropped>(result) ? dropped : answered);
    };
    std::vector<uint64_t> ids;
    for (int i = 0; i < 50; ++i) {
      ids.push_back(scheduler->submit({{prompt(1, 2), prompt(2, 2)}, count}));
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i != 20) scheduler->cancel(ids[i]);
    }
    scheduler->cancel(12345);
    CHECK(dropped == 48);  // the first is on its way
    CHECK(scheduler->queue().questions == 2);
    CHECK(scheduler->queue().tokens == 2);
  }
  CHECK(dropped == 48);
  CHECK(answered == 2);  // the first, both of whose prompts ran, and the one that stayed
  CHECK(engine.stats().prompts - before == 4);
}

TEST_CASE("admission: questions and tokens that wait are bounded") {
  Engine engine(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "300000");
  const auto scheduler = scheduler_of(engine, room_for(10, 20));
  CHECK(scheduler->admit(64));  // alone, however many
  CHECK(!scheduler->admit(1));
  scheduler->release(64);
  CHECK(scheduler->admit(6));
  CHECK(scheduler->admit(4));
  CHECK(!scheduler->admit(1));
  scheduler->release(10);
  CHECK(scheduler->queue().questions == 0);
  std::promise<void> last;
  CHECK(scheduler->admit(1));
  scheduler->submit({{prompt(1, 2)}, [](Result, scheduling::Timing) {}});
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(scheduler->admit(1));
  scheduler->submit(
      {{{std::vector<uint32_t>(30, 1), 2}}, [&](Result, scheduling::Timing) { last.set_value(); }});
  CHECK(!scheduler->admit(1));  // 30 tokens wait
  last.get_future().wait();
  CHECK(scheduler->admit(1));
  CHECK(scheduler->queue().questions_per_second > 0);
}

TEST_CASE("a pass that fails is tried prompt by prompt") {
  Engine engine(library(), {});
  const auto scheduler = scheduler_of(engine);
  const Variable slow("CUA_FAKE_CALL_US", "5000"), fail("CUA_FAKE_FAIL", "10"),
      text("CUA_FAKE_FAIL_TEXT", "ZZZZ");
  std::vector<int32_t> codes(9);
  std::atomic<int> done{0};
  for (size_t i = 0; i < codes.size(); ++i) {
    scheduler->submit({{prompt(i == 4 ? 'Z' : 1, 2)}, [&, i](Result result, scheduling::Timing) {
                         codes[i] = code_of(result);
                         ++done;
                       }});
  }
  while (done != 9) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (size_t i = 0; i < codes.size(); ++i) {
    CHECK(codes[i] == (i == 4 ? int32_t{CUA_NOT_FINITE} : int32_t{CUA_OK}));
  }
}

TEST_CASE("several engines share one queue") {
  Engine a(library(), {}), b(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "5000");
  Engine *const engines[] = {&a, &b};
  std::atomic<int> done{0};
  {
    SchedulerOptions options;
    options.batch = false;
    Scheduler scheduler(engines, options);
    for (int i = 0; i < 20; ++i)
      scheduler.submit({{prompt(1, 2)}, [&](Result, scheduling::Timing) { ++done; }});
  }
  CHECK(done == 20);
  CHECK(a.stats().forwards > 0);
  CHECK(b.stats().forwards > 0);
}

TEST_CASE("the questions of one request use every engine") {
  Engine a(library(), {}), b(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "5000");
  Engine *const engines[] = {&a, &b};
  {
    Scheduler scheduler(engines, passes_of(false));
    CHECK(code_of(run(scheduler, std::vector<Prompt>(20, prompt(1, 2)))) == CUA_OK);
  }
  CHECK(a.stats().forwards >= 5);
  CHECK(b.stats().forwards >= 5);
}

TEST_CASE("one of two devices is lost: the other goes on") {
  Engine a(library(), {}), b(library(), {});
  Engine *const engines[] = {&a, &b};
  Scheduler scheduler(engines, passes_of(false));
  {
    const Variable fail("CUA_FAKE_FAIL", "7");
    CHECK(code_of(run(scheduler, {prompt(1, 2)})) == CUA_DEVICE_FAILED);
  }
  CHECK(!scheduler.device_failure());
  for (int i = 0; i < 10; ++i) CHECK(code_of(run(scheduler, {prompt(1, 2)})) == CUA_OK);
  {
    const Variable fail("CUA_FAKE_FAIL", "7");
    CHECK(code_of(run(scheduler, {prompt(1, 2)})) == CUA_DEVICE_FAILED);
  }
  CHECK(scheduler.device_failure());
}

TEST_CASE("two of two devices are lost at once: that is known when both have been told") {
  Engine a(library(), {}), b(library(), {});
  Engine *const engines[] = {&a, &b};
  const Variable fail("CUA_FAKE_FAIL", "7"), slow("CUA_FAKE_CALL_US", "100000");
  // Neither thread gets further than its answer before the other is there too.
  std::latch both(2);
  std::atomic<int> told{0};
  SchedulerOptions options = passes_of(false);
  options.settled = [&] { both.arrive_and_wait(); };
  {
    Scheduler scheduler(engines, options, [&] { ++told; });
    for (int i = 0; i < 2; ++i) {
      scheduler.submit({{prompt(1, 2)}, [](Result, scheduling::Timing) {}});
    }
    both.wait();
    CHECK(scheduler.device_failure());
  }
  CHECK(told == 1);
}

TEST_CASE("company is not waited for once a pass is full") {
  Engine engine(library(), {});
  SchedulerOptions options = passes_of(true, 2);
  options.batch_wait = std::chrono::hours(1);
  std::promise<void> done;
  const auto scheduler = scheduler_of(engine, options);
  scheduler->submit({{prompt(1, 2), prompt(2, 2)}, [&](Result, scheduling::Timing) {
                       done.set_value();
                     }});
  CHECK(done.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready);
}

TEST_CASE("who is cancelled while its last prompts run gets the scores after all") {
  Engine engine(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "150000");
  const auto scheduler = scheduler_of(engine);
  std::promise<Result> whole, part;
  const uint64_t one = scheduler->submit({{prompt(1, 2)}, [&](Result result, scheduling::Timing) {
                                            whole.set_value(std::move(result));
                                          }});
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const uint64_t two = scheduler->submit({{prompt(1, 2)}, [&](Result result, scheduling::Timing) {
                                            part.set_value(std::move(result));
                                          }});
  scheduler->cancel(one);
  scheduler->cancel(two);
  CHECK(scheduler->queue().questions == 0);
  CHECK(code_of(whole.get_future().get()) == CUA_OK);
  CHECK(std::holds_alternative<scheduling::Dropped>(part.get_future().get()));
}

TEST_CASE("the end waits for what is queued") {
  Engine engine(library(), {});
  const Variable slow("CUA_FAKE_CALL_US", "1000");
  std::atomic<int> done{0};
  {
    const auto scheduler_owner = scheduler_of(engine);
    Scheduler &scheduler = *scheduler_owner;
    for (int i = 0; i < 30; ++i)
      scheduler.submit({{prompt(1, 2)}, [&](Result, scheduling::Timing) { ++done; }});
  }
  CHECK(done == 30);
}
