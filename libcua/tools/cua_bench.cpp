// SPDX-License-Identifier: Apache-2.0
// cua-bench: times the library, as any client has it or from the inside. One file a subcommand.
#include <exception>
#include <iostream>
#include <string>

#include "tools/bench_command.h"

namespace {

constexpr char kUsage[] =
    "usage: cua-bench COMMAND [options]\n"
    "\n"
    "  floor      what a GPU needs for a pass's matrix products and attention alone\n"
    "  forward    time of a forward pass by prompt length, on random token ids\n"
    "  tokenize   speed of tokenisation\n"
    "\n"
    "cua-bench COMMAND --help tells the options of a command.\n"
    "Exit status: 0 done, 1 failed, 2 usage.\n";

}  // namespace

int main(int argc, char **argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "--help") {
    std::cout << kUsage;
    return 0;
  }
  try {
    if (command == "floor") {
      cua::tools::bench_floor(argc - 1, argv + 1);
    } else if (command == "forward") {
      cua::tools::bench_forward(argc - 1, argv + 1);
    } else if (command == "tokenize") {
      cua::tools::bench_tokenize(argc - 1, argv + 1);
    } else {
      std::cerr << (argc > 1 ? "cua-bench: unknown command " + command + "\n" : "") << kUsage;
      return 2;
    }
    return 0;
  } catch (const cua::tools::UsageError &error) {
    std::cerr << "cua-bench " << command << ": " << error.what() << "\nTry cua-bench " << command
              << " --help.\n";
    return 2;
  } catch (const std::exception &error) {
    std::cerr << "cua-bench " << command << ": " << error.what() << '\n';
    return 1;
  }
}
