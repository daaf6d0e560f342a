// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace cua::checkpoint {

// A whole file, mapped to be read. The file must not be cut while it is mapped.
class MappedFile {
 public:
  // Throws Error BAD_MODEL that names the file: missing, unreadable, not a regular file.
  explicit MappedFile(const std::filesystem::path &path);
  ~MappedFile();
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte *data_ = nullptr;
  size_t size_ = 0;
};

// Takes what lies wholly within `bytes` of a mapped file out of this process's resident set; it
// stays in the system's cache, and whoever reads it again faults it in. For passes over files
// larger than memory should be.
void forget_pages(std::span<const std::byte> bytes);

// Whether a folder has an entry of that name. A link that leads nowhere is one: opening it then
// says so, where "there is none" would pass over it. So is what cannot be examined.
bool has_entry(const std::filesystem::path &path);

// The whole of a small text file. Throws Error BAD_MODEL that names it; `limit` in bytes.
std::string read_text(const std::filesystem::path &path, size_t limit);

}  // namespace cua::checkpoint
