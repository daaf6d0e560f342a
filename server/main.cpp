// SPDX-License-Identifier: Apache-2.0
// cua-server: answers POST /v1/systemone with the decisions of libcua.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "decision/answer.h"
#include "decision/prompt.h"
#include "demonstration.h"
#include "http/listener.h"
#include "library.h"
#include "options.h"
#include "scheduling/engine.h"
#include "scheduling/scheduler.h"
#include "telemetry/log.h"
#include "telemetry/supervisor.h"

namespace {

using namespace cua_server;
using telemetry::Level;
using telemetry::log;
using Clock = std::chrono::steady_clock;

enum Exit { kStopped = 0, kUsage = 2, kLibrary = 3, kModel = 4, kListen = 5, kDevice = 6 };

// The engines of all devices, each of which has made a decision.
struct Engines {
  std::vector<std::unique_ptr<scheduling::Engine>> all;
  Exit failure = kStopped;  // why there are none, already told in the log
};

// A decision through everything but the sockets, before anyone is told that the worker is ready.
void warm_up(scheduling::Engine &engine) {
  const std::string labels[] = {"Press the button.", "Do nothing."};
  const scheduling::Prompt prompt{
      engine.tokenize(decision::prompt("Press the button.", "button \"OK\"", labels)), 2};
  const scheduling::Prompt *const prompts[] = {&prompt};
  engine.score(prompts);
}

Engines load(const Library &library, const Options &options) {
  Engines engines;
  try {
    for (const Device &device : options.devices) {
      scheduling::EngineOptions engine_options;
      engine_options.model_dir = options.model;
      engine_options.device = device.ordinal;
      engine_options.graph_mode = options.graph_mode;
      engine_options.threads = options.threads;
      engine_options.plans = options.plans;
      engine_options.max_batch_tokens = options.max_batch_tokens;
      engine_options.prefix = decision::prompt_prefix();  // computed once, while loading
      auto &engine =
          engines.all.emplace_back(std::make_unique<scheduling::Engine>(library, engine_options));
      if (!engine->has_tokenizer()) {
        log(Level::error, options.model +
                              ": has no tokenizer.json, without which text cannot be scored; copy "
                              "it from the base model");
        engines.failure = kModel;
        return engines;
      }
      warm_up(*engine);
      log(Level::info, "model " + options.model + " on " + engine->device());
      if (decision::is_demonstration(engine->model().value_or(""))) {
        log(Level::warning, *engine->model() + ": " + std::string(decision::kDemonstrationNote));
      }
    }
  } catch (const scheduling::EngineError &error) {
    log(Level::error, std::string("cannot use the model or the device: ") + error.what());
    engines.failure = error.code() == CUA_DEVICE_FAILED ? kDevice : kModel;
  } catch (const std::exception &error) {
    log(Level::error, std::string("cannot load the model: ") + error.what());
    engines.failure = kModel;
  }
  return engines;
}

double resident_gigabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmRSS:" && status >> kilobytes) return kilobytes * 1024e-9;
  }
  return 0;
}

// --check: loads, makes one decision, tells what there is.
int check(const Library &library, const Options &options) {
  const auto began = Clock::now();
  const Engines engines = load(library, options);
  if (engines.failure != kStopped) return engines.failure;
  const std::chrono::duration<double> loaded = Clock::now() - began;
  for (const auto &engine : engines.all) {
    const auto start = Clock::now();
    warm_up(*engine);
    const std::chrono::duration<double, std::milli> decided = Clock::now() - start;
    std::printf(
        "device: %s\nmodel: %s\nmemory: %.3f GB resident, %.3f GB on the device\n"
        "loaded in %.2f s, a decision in %.2f ms\n",
        engine->device().c_str(), engine->model().value_or("the pinned weights").c_str(),
        resident_gigabytes(), static_cast<double>(engine->stats().device_bytes) * 1e-9,
        loaded.count(), decided.count());
  }
  std::printf("ready to serve\n");
  return kStopped;
}

// The worker from its first connection to its last.
class Worker {
 public:
  Worker(const Library &library, const Options &options)
      : library_(library),
        options_(options),
        context_(1),  // one thread runs it
        service_({options.request_timeout, options.workers, options.accepted_models,
                  options.api_keys, options.protect_metrics, options.cors_origins, options.has_page,
                  CUA_VERSION}),
        listener_(context_, service_, options.max_connections),
        signals_(context_, SIGINT, SIGTERM),
        delay_(context_),
        deadline_(context_),
        watchdog_(context_) {}

  int serve() {
    for (const http::Address &address : options_.addresses) {
      try {
        listener_.listen(address);
      } catch (const boost::system::system_error &error) {
        log(Level::error,
            "cannot listen on " +
                (address.path.empty() ? address.host + ":" + std::to_string(address.port)
                                      : "unix:" + address.path) +
                ": " + error.code().message());
        return kListen;
      }
    }
    listener_.start();
    wait_for_signal();
    // Loading takes seconds; the sockets say so meanwhile.
    loader_ = std::thread([this] {
      auto engines = std::make_shared<Engines>(load(library_, options_));
      boost::asio::post(context_, [this, engines] { loaded(std::move(*engines)); });
    });
    // What escapes a connection's own handlers (no memory, say) must not take the others along.
    for (bool done = false; !done;) {
      try {
        context_.run();
        done = true;
      } catch (const std::exception &error) {
        log(Level::error, std::string("a connection failed: ") + error.what());
      }
    }
    if (loader_.joinable()) loader_.join();
    log(Level::info, "stopped");
    return status();
  }

 private:
  // Of the process, however it ends.
  Exit status() const {
    if (failure_ != kStopped) return failure_;
    return scheduler_ && scheduler_->device_failure() ? kDevice : kStopped;
  }

  // Ends at once, though not all is answered.
  [[noreturn]] void leave(int status) {
    listener_.remove_files();
    ::_exit(status);
  }

  void loaded(Engines engines) {
    loader_.join();
    if (engines.failure != kStopped) {
      failure_ = engines.failure;
      drain({});
      return;
    }
    if (stopping_) return;
    engines_ = std::move(engines.all);
    std::vector<scheduling::Engine *> all;
    for (const auto &engine : engines_) all.push_back(engine.get());
    scheduling::SchedulerOptions scheduling;
    scheduling.batch = options_.batch;
    scheduling.max_batch_tokens = options_.max_batch_tokens;
    scheduling.batch_wait = options_.batch_wait;
    scheduling.queue_questions = options_.max_queue_requests;
    scheduling.queue_tokens = options_.max_queue_tokens;
    scheduling.observe = [this](const scheduling::PassReport &pass) { service_.observe(pass); };
    scheduling.settled = [this] { service_.settled(); };
    scheduler_.emplace(all, scheduling, [this] {
      if (!options_.exit_on_device_failure) return;
      log(Level::error, "the device is lost: stopping, as --exit-on-device-failure asks");
      boost::asio::post(context_, [this] { drain({}); });
    });
    service_.is_ready(all, *scheduler_);
    const std::vector<std::string> addresses = listener_.addresses();
    for (const std::string &address : addresses) log(Level::info, "ready on " + address);
    std::printf("listening on %s\n", addresses.front().c_str());
    std::fflush(stdout);
    supervisor_.tell("READY=1\nSTATUS=ready on " + addresses.front());
    feed_watchdog();
  }

  void wait_for_signal() {
    signals_.async_wait([this](const boost::system::error_code &error, int number) {
      if (error) return;
      log(Level::info, "signal " + std::to_string(number) +
                           ": finishing what was accepted; a second signal stops at once");
      signals_.async_wait([this](const boost::system::error_code &again, int second) {
        if (!again) leave(128 + second);
      });
      if (!scheduler_) {  // nothing was accepted, and loading cannot be interrupted
        log(Level::info, "stopped while loading");
        leave(kStopped);
      }
      drain(options_.drain_delay);
    });
  }

  // Says that it is not ready, and answers for so long yet: proxies learn of it by asking.
  void drain(std::chrono::milliseconds delay) {
    if (stopping_) return;
    supervisor_.tell("STOPPING=1");
    service_.start_draining();
    if (delay.count() == 0) return stop();
    delay_.expires_after(delay);
    delay_.async_wait([this](const boost::system::error_code &error) {
      if (!error) stop();
    });
  }

  // Accepts no more, finishes what was accepted.
  void stop() {
    if (std::exchange(stopping_, true)) return;
    delay_.cancel();
    if (options_.shutdown_timeout.count() > 0) {
      deadline_.expires_after(options_.shutdown_timeout);
      deadline_.async_wait([this](const boost::system::error_code &error) {
        if (error) return;
        log(Level::warning, "--shutdown-timeout is over, and not all is answered: stopping");
        leave(status());
      });
    }
    watchdog_.cancel();
    listener_.stop([this] {  // then nothing keeps the context running
      signals_.cancel();
      deadline_.cancel();
    });
  }

  // Tells systemd's watchdog that the thread of the sockets turns.
  void feed_watchdog() {
    const auto interval = supervisor_.watchdog_interval();
    if (interval.count() == 0 || stopping_) return;
    if (!scheduler_->device_failure()) supervisor_.tell("WATCHDOG=1");
    watchdog_.expires_after(interval);
    watchdog_.async_wait([this](const boost::system::error_code &error) {
      if (!error) feed_watchdog();
    });
  }

  const Library &library_;
  const Options &options_;
  telemetry::Supervisor supervisor_;
  boost::asio::io_context context_;
  std::vector<std::unique_ptr<scheduling::Engine>> engines_;
  std::optional<scheduling::Scheduler> scheduler_;
  http::Service service_;
  http::Listener listener_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer delay_, deadline_, watchdog_;
  std::thread loader_;
  bool stopping_ = false;
  Exit failure_ = kStopped;
};

// A connection takes a descriptor: as many as the hard limit allows, where the soft one is too low.
void allow_descriptors(size_t connections) {
  constexpr rlim_t kOthers = 256;  // engines, files, sockets that listen
  const rlim_t wanted = connections + kOthers;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted) {
    log(Level::warning, "the limit of open files, " + std::to_string(limit.rlim_cur) +
                            ", is less than --max-connections needs, " + std::to_string(wanted) +
                            ": raise it (ulimit -Hn, LimitNOFILE=)");
  }
}

int serve(Options options) {
  if (options.model.empty()) options.model = find_demonstration().string();
  const std::filesystem::path path = options.cuda_lib.empty()
                                         ? Library::find(options.devices.front().is_cpu)
                                         : std::filesystem::path(options.cuda_lib);
  const Library library(path);
  log(Level::info, "library " + path.string() + " " + library.build_info());
  if (options.check) return check(library, options);
  allow_descriptors(options.max_connections);
  return Worker(library, options).serve();
}

}  // namespace

int main(int argc, char **argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);  // a terminal that goes takes no worker along
  try {
    const Options options = parse_options(argc, argv);
    if (options.help) {
      std::cout << usage();
      return kStopped;
    }
    if (options.version) {
      std::cout << "cua-server " CUA_VERSION "\n";
      return kStopped;
    }
    telemetry::set_log(options.log_json ? telemetry::LogFormat::json : telemetry::LogFormat::text,
                       static_cast<Level>(options.log_level));
    return serve(options);
  } catch (const UsageError &error) {
    std::cerr << "cua-server: " << error.what() << "\nTry cua-server --help.\n";
    return kUsage;
  } catch (const LibraryError &error) {
    log(Level::error, error.what());
    return kLibrary;
  } catch (const std::exception &error) {
    log(Level::error, std::string("cannot go on: ") + error.what());
    return kModel;
  }
}
