// SPDX-License-Identifier: Apache-2.0
#include "tools/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <vector>

#include "checkpoint/workers.h"
#include "error.h"
#include "tools/progress.h"

namespace cua::tools {
namespace {

struct File {
  explicit File(const std::filesystem::path &path)
      : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  int fd;
};

FileHash hash_file(const std::filesystem::path &path, Progress &progress) {
  const auto fail = [&] {
    throw Error(CUA_BAD_MODEL,
                path.string() + ": cannot be read: " + std::generic_category().message(errno));
  };
  const File file(path);
  if (file.fd < 0) fail();
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    throw Error(CUA_INTERNAL, "SHA-256 cannot be started");
  }
  std::vector<unsigned char> buffer(size_t{4} << 20);
  FileHash hash;
  for (;;) {
    const ssize_t n = ::read(file.fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail();
    if (n == 0) break;
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(n));
    hash.size += static_cast<uint64_t>(n);
    progress.add(static_cast<uint64_t>(n));
  }
  std::array<unsigned char, 32> digest{};
  EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
  for (const unsigned char byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    hash.sha256 += kDigits[byte >> 4];
    hash.sha256 += kDigits[byte & 15];
  }
  return hash;
}

}  // namespace

std::vector<FileHash> hash_files(const std::vector<std::filesystem::path> &paths,
                                 const std::string &what, size_t threads) {
  uint64_t all = 0;
  std::vector<uint64_t> sizes;
  std::vector<size_t> order;  // the largest first, so that no thread is left with it at the end
  for (const auto &path : paths) {
    std::error_code unknown;  // is told when it is read
    const uint64_t size = std::filesystem::file_size(path, unknown);
    sizes.push_back(unknown ? 0 : size);
    all += sizes.back();
    order.push_back(order.size());
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  Progress progress(what, all);
  std::vector<FileHash> hashes(paths.size());
  checkpoint::run_on_workers(order.size(), threads, [&](size_t i) {
    hashes[order[i]] = hash_file(paths[order[i]], progress);
  });
  return hashes;
}

}  // namespace cua::tools
