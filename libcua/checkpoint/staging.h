// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <string>

namespace cua::checkpoint {

enum class Existing { refuse, replace };

// A folder beside the one to be made, removed with all it holds unless it has taken its place. So
// whoever is interrupted leaves nothing half-made under the name that was asked for.
class Staging {
 public:
  // Throws Error INVALID_ARGUMENT where something other than an empty folder stands at `target` and
  // is not to be replaced; std::filesystem errors for the disk's own.
  explicit Staging(const std::filesystem::path &target, Existing existing = Existing::refuse);
  ~Staging();
  Staging(const Staging &) = delete;
  Staging &operator=(const Staging &) = delete;

  const std::filesystem::path &path() const { return path_; }
  // Waits until everything is on the disk, so that no crash can leave a name without its data.
  void sync() const;
  // Takes the target's place. What stood there is removed once the new folder has its name.
  void commit();

 private:
  std::filesystem::path target_, path_;
  Existing existing_;
};

// A small file, whole. Throws Error INTERNAL that names it.
void write_text(const std::filesystem::path &path, const std::string &text);

}  // namespace cua::checkpoint
