// SPDX-License-Identifier: Apache-2.0
// Model folders made by tests.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "catch.h"
#include "checkpoint/checkpoint.h"
#include "error.h"
#include "safetensors_file.h"

namespace cua::test {

namespace fs = std::filesystem;

inline const fs::path kGolden = fs::path(CUA_TEST_DATA) / "golden";

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "cua_test_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  explicit Folder(const fs::path &copy_of) : Folder() {
    fs::copy(copy_of, path_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    fs::permissions(path_, fs::perms::owner_all, fs::perm_options::add);
    for (const auto &entry : fs::directory_iterator(path_)) {
      fs::permissions(entry, fs::perms::owner_write, fs::perm_options::add);
    }
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  const fs::path &path() const { return path_; }
  fs::path operator/(const std::string &name) const { return path_ / name; }

 private:
  fs::path path_;
};

struct Refusal {
  int32_t code = CUA_OK;
  std::string message;
};

// What opening a folder says; code CUA_OK where it opens.
inline Refusal refusal(const fs::path &folder,
                       checkpoint::MarkerPolicy policy = checkpoint::MarkerPolicy::optional) {
  try {
    const checkpoint::Checkpoint checkpoint(folder, policy);
    return {};
  } catch (const Error &error) {
    return {error.code(), error.what()};
  }
}

// Checks that a folder is refused with a code and a message that holds every needle.
inline void check_refused(const fs::path &folder, int32_t code,
                          const std::vector<std::string> &needles,
                          checkpoint::MarkerPolicy policy = checkpoint::MarkerPolicy::optional) {
  const Refusal refused = refusal(folder, policy);
  CAPTURE(refused.message);
  CHECK(refused.code == code);
  for (const std::string &needle : needles) {
    CAPTURE(needle);
    CHECK(refused.message.find(needle) != std::string::npos);
  }
}

}  // namespace cua::test
