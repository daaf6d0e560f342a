// SPDX-License-Identifier: Apache-2.0
// cua-export: makes and examines model folders. One file a subcommand.
#include <cstring>
#include <exception>
#include <iostream>
#include <utility>

#include "error.h"
#include "tools/export_command.h"

namespace {

constexpr char kUsage[] =
    "usage: cua-export COMMAND [options]\n"
    "\n"
    "  merge       merge a LoRA adapter into a base model\n"
    "  verify      examine a merged folder, or a download\n"
    "  info        tell what a folder is\n"
    "  synthetic   write a random checkpoint, base model or adapter\n"
    "\n"
    "cua-export COMMAND --help tells the options of a command.\n"
    "Exit status: 0 done, 1 failed or found wrong, 2 usage.\n";

}  // namespace

int main(int argc, char **argv) {
  const char *const command = argc > 1 ? argv[1] : "";
  if (std::strcmp(command, "--help") == 0) {
    std::cout << kUsage;
    return 0;
  }
  try {
    using Command = int(int, const char *const *);
    constexpr std::pair<const char *, Command *> kCommands[] = {
        {"merge", cua::tools::export_merge},
        {"verify", cua::tools::export_verify},
        {"info", cua::tools::export_info},
        {"synthetic", cua::tools::export_synthetic}};
    for (const auto &[name, run] : kCommands) {
      if (std::strcmp(command, name) == 0) return run(argc - 1, argv + 1);
    }
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
