// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "error.h"

namespace cua::checkpoint {
namespace {

[[noreturn]] void fail(const std::filesystem::path &path, const std::string &what) {
  throw Error(CUA_BAD_MODEL, path.string() + ": " + what);
}

[[noreturn]] void fail_errno(const std::filesystem::path &path, const char *what) {
  const int error = errno;
  const int32_t code = error == ENOMEM ? CUA_OUT_OF_MEMORY : CUA_BAD_MODEL;
  throw Error(code,
              path.string() + ": cannot " + what + ": " + std::generic_category().message(error));
}

// Closes what it holds. Opening never waits: a named pipe is to be refused, not read from.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path &path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
    if (fd_ < 0) fail_errno(path, "open the file");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

size_t size_of_regular(const Descriptor &file, const std::filesystem::path &path) {
  struct stat status;
  if (::fstat(file.get(), &status) != 0) fail_errno(path, "examine the file");
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  return static_cast<size_t>(status.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path &path) {
  const Descriptor file(path);
  size_ = size_of_regular(file, path);
  if (size_ == 0) return;  // nothing to map; the header check names the fault
  void *const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail_errno(path, "map the file");
  data_ = static_cast<const std::byte *>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte *>(data_), size_);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void forget_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  if (begin < end) (void)::madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}

bool has_entry(const std::filesystem::path &path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() !=
         std::filesystem::file_type::not_found;
}

std::string read_text(const std::filesystem::path &path, size_t limit) {
  const Descriptor file(path);
  const size_t size = size_of_regular(file, path);
  if (size > limit) {
    fail(path, "has " + std::to_string(size) + " bytes, more than the " + std::to_string(limit) +
                   " that such a file may have");
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.get(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(path, "read the file");
    if (n == 0) break;  // it shrank
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

}  // namespace cua::checkpoint
