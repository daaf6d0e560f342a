// SPDX-License-Identifier: Apache-2.0
// cua-server: answers POST /v1/systemone with the decisions of libcua.
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>

#include "decision/prompt.h"
#include "http/listener.h"
#include "library.h"
#include "options.h"
#include "scheduling/engine.h"
#include "scheduling/scheduler.h"
#include "telemetry/log.h"

namespace {

using namespace cua_server;
using telemetry::Level;
using telemetry::log;

enum Exit { kStopped = 0, kUsage = 2, kLibrary = 3, kModel = 4, kListen = 5, kDevice = 6 };

// A decision through everything but the sockets, before anyone is told that the worker is ready.
void warm_up(scheduling::Engine &engine) {
  const std::string labels[] = {"Press the button.", "Do nothing."};
  const scheduling::Prompt prompt{
      engine.tokenize(decision::prompt("Press the button.", "button \"OK\"", labels)), 2};
  engine.score({&prompt, 1});
}

int serve(const Options &options) {
  const std::filesystem::path path = options.cuda_lib.empty()
                                         ? Library::find(options.device_is_cpu)
                                         : std::filesystem::path(options.cuda_lib);
  const Library library(path);
  log(Level::info, "library " + path.string() + " " + library.build_info());

  scheduling::EngineOptions engine_options;
  engine_options.model_dir = options.model;
  engine_options.device = options.device;
  engine_options.graph_mode = options.graph_mode;
  engine_options.threads = options.threads;
  engine_options.prefix = decision::prompt_prefix();  // computed once, while loading
  std::optional<scheduling::Engine> engine;
  try {
    engine.emplace(library, engine_options);
    if (!engine->has_tokenizer()) {
      log(Level::error, options.model +
                            ": has no tokenizer.json, without which text cannot be scored; copy it "
                            "from the base model");
      return kModel;
    }
    warm_up(*engine);
  } catch (const scheduling::EngineError &error) {
    log(Level::error, std::string("cannot use the model or the device: ") + error.what());
    return error.code() == CUA_DEVICE_FAILED ? kDevice : kModel;
  }
  log(Level::info, "model " + options.model + " on " + engine->device());

  boost::asio::io_context context(1);  // one thread runs it
  std::function<void()> stop;          // finishes what was accepted; set below
  scheduling::Scheduler scheduler(*engine, [&] {
    if (!options.exit_on_device_failure) return;
    log(Level::error, "the device is lost: stopping, as --exit-on-device-failure asks");
    boost::asio::post(context, [&] { stop(); });
  });
  http::Service service(*engine, scheduler);
  std::optional<http::Listener> listener;
  try {
    listener.emplace(context, options.host, options.port, service);
  } catch (const boost::system::system_error &error) {
    log(Level::error, "cannot listen on " + options.host + ":" + std::to_string(options.port) +
                          ": " + error.code().message());
    return kListen;
  }

  boost::asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code &error, int number) {
    if (error) return;
    log(Level::info, "signal " + std::to_string(number) +
                         ": finishing what was accepted; a second signal stops at once");
    signals.async_wait([](const boost::system::error_code &again, int second) {
      if (!again) ::_exit(128 + second);
    });
    stop();
  });
  stop = [&, stopping = false]() mutable {
    if (std::exchange(stopping, true)) return;
    service.start_draining();
    listener->stop([&] { signals.cancel(); });  // then nothing keeps the context running
  };
  listener->start();
  std::printf("listening on %s\n", listener->address().c_str());
  std::fflush(stdout);
  context.run();
  log(Level::info, "stopped");
  return scheduler.device_failure() ? kDevice : kStopped;
}

}  // namespace

int main(int argc, char **argv) {
  std::signal(SIGPIPE, SIG_IGN);
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
