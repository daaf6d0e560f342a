// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/staging.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "error.h"

namespace cua::checkpoint {
namespace {

namespace fs = std::filesystem;

void sync_entry(const fs::path &path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!done) {
    throw Error(CUA_INTERNAL,
                path.string() + ": cannot sync: " + std::generic_category().message(error));
  }
}

}  // namespace

Staging::Staging(const fs::path &target, Existing existing)
    : target_(fs::absolute(target).lexically_normal()), existing_(existing) {
  if (!target_.has_filename()) target_ = target_.parent_path();
  if (fs::exists(fs::symlink_status(target_))) {
    std::error_code error;
    const fs::path real = fs::canonical(target_, error);  // where a link leads
    const bool is_folder = !error && fs::is_directory(real);
    if (!is_folder || (existing == Existing::refuse && !fs::is_empty(real))) {
      throw Error(CUA_INVALID_ARGUMENT, target.string() + ": exists and is not an empty folder");
    }
    target_ = real;
  }
  fs::create_directories(target_.parent_path());
  fs::path path = target_;
  path += ".partial-" + std::to_string(::getpid());
  fs::create_directory(path);
  path_ = path;
}

Staging::~Staging() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void Staging::sync() const {
  for (const auto &entry : fs::recursive_directory_iterator(path_)) sync_entry(entry.path());
  sync_entry(path_);
}

void Staging::commit() {
  std::error_code error;
  fs::rename(path_, target_, error);  // in the place of an empty folder, too
  if (!error) {
    path_.clear();
    sync_entry(target_.parent_path());
    return;
  }
  if (existing_ == Existing::refuse) {
    throw fs::filesystem_error("cannot take its place", path_, target_, error);
  }
  // The two change places at once: nobody ever finds none. The old one then goes with this object.
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    sync_entry(target_.parent_path());
    return;
  }
  // File systems that cannot exchange.
  fs::path old = target_;
  old += ".replaced-" + std::to_string(::getpid());
  fs::rename(target_, old);
  fs::rename(path_, target_, error);
  if (error) {
    fs::rename(old, target_);
    throw fs::filesystem_error("cannot take its place", path_, target_, error);
  }
  path_.clear();
  sync_entry(target_.parent_path());
  fs::remove_all(old, error);
}

void write_text(const fs::path &path, const std::string &text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(CUA_INTERNAL, path.string() + ": cannot write; is the disk full?");
}

}  // namespace cua::checkpoint
