// SPDX-License-Identifier: Apache-2.0
// cua-export: makes and examines model folders. One file a subcommand.
#include <cstring>
#include <exception>
#include <iostream>

#include "error.h"
#include "tools/export_command.h"

namespace {

constexpr char kUsage[] =
    "usage: cua-export COMMAND [options]\n"
    "\n"
    "  synthetic   write a random checkpoint in the merged layout\n"
    "\n"
    "cua-export COMMAND --help tells the options of a command.\n";

}  // namespace

int main(int argc, char **argv) {
  const char *const command = argc > 1 ? argv[1] : "";
  if (std::strcmp(command, "--help") == 0) {
    std::cout << kUsage;
    return 0;
  }
  try {
    if (std::strcmp(command, "synthetic") == 0)
      return cua::tools::export_synthetic(argc - 1, argv + 1);
    std::cerr << (argc > 1 ? "cua-export: unknown command " + std::string(command) + "\n" : "")
              << kUsage;
    return 2;
  } catch (const cua::tools::UsageError &error) {
    std::cerr << "cua-export " << command << ": " << error.what() << "\nTry cua-export " << command
              << " --help.\n";
    return 2;
  } catch (const std::exception &error) {
    std::cerr << "cua-export " << command << ": " << error.what() << '\n';
    return 1;
  }
}
