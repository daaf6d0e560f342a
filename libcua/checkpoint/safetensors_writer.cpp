// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "error.h"

namespace cua::checkpoint {
namespace {

constexpr uint64_t kMostShardBytes = 5'000'000'000;

[[noreturn]] void fail(const std::string &path, const char *what) {
  throw Error(CUA_INTERNAL,
              path + ": cannot " + what + ": " + std::generic_category().message(errno));
}

void write_all(int fd, const std::string &path, uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path, "write");
    offset += static_cast<uint64_t>(n);
    data = data.subspan(static_cast<size_t>(n));
  }
}

}  // namespace

uint64_t OutputTensor::bytes() const {
  uint64_t n = backend::size_of(dtype);
  for (const uint64_t extent : shape) n *= extent;
  return n;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path &folder,
                                     std::vector<OutputTensor> tensors, const std::string &stem)
    : tensors_(std::move(tensors)) {
  std::vector<std::vector<size_t>> groups(1);
  uint64_t filled = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uint64_t size = tensors_[i].bytes();
    if (filled + size > kMostShardBytes && !groups.back().empty()) {
      groups.emplace_back();
      filled = 0;
    }
    groups.back().push_back(i);
    filled += size;
    bytes_ += size;
  }
  places_.resize(tensors_.size());
  boost::json::object weight_map;
  for (size_t shard = 0; shard < groups.size(); ++shard) {
    std::string name = stem + ".safetensors";
    if (groups.size() > 1) {
      char number[32];
      std::snprintf(number, sizeof number, "-%05zu-of-%05zu", shard + 1, groups.size());
      name.insert(stem.size(), number);
    }
    boost::json::object header;
    header["__metadata__"] = {{"format", "pt"}};
    uint64_t offset = 0;
    for (const size_t i : groups[shard]) {
      const OutputTensor &tensor = tensors_[i];
      header[tensor.name] = {
          {"dtype", tensor.dtype == backend::Dtype::bf16 ? "BF16" : "F32"},
          {"shape", boost::json::array(tensor.shape.begin(), tensor.shape.end())},
          {"data_offsets", {offset, offset + tensor.bytes()}}};
      weight_map[tensor.name] = name;
      offset += tensor.bytes();
    }
    std::string text = boost::json::serialize(header);
    text.append((8 - text.size() % 8) % 8, ' ');
    const uint64_t length = text.size();
    std::string head(sizeof length, '\0');
    std::memcpy(head.data(), &length, sizeof length);
    head += text;

    const std::string path = (folder / name).string();
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) fail(path, "create the file");
    shards_.push_back({path, fd, std::make_unique<std::mutex>()});
    write_all(fd, path, 0, std::as_bytes(std::span(head)));
    if (::ftruncate(fd, static_cast<off_t>(head.size() + offset)) != 0) fail(path, "set its size");
    offset = head.size();
    for (const size_t i : groups[shard]) {
      places_[i] = {shard, offset};
      offset += tensors_[i].bytes();
    }
  }
  if (groups.size() > 1) {
    const boost::json::object index{{"metadata", {{"total_size", bytes_}}},
                                    {"weight_map", std::move(weight_map)}};
    const std::string text = boost::json::serialize(index) + "\n";
    const std::string path = (folder / "model.safetensors.index.json").string();
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) fail(path, "create the file");
    shards_.push_back({path, fd, std::make_unique<std::mutex>()});
    write_all(fd, path, 0, std::as_bytes(std::span(text)));
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  for (const Shard &shard : shards_) ::close(shard.fd);
}

void SafetensorsWriter::write(size_t index, uint64_t offset,
                              std::span<const std::byte> data) const {
  const Place &place = places_.at(index);
  const Shard &shard = shards_[place.shard];
  // The system lets one thread at a time write to a file, and the others spin: with two threads
  // half of a large merge's time went there.
  const std::lock_guard lock(*shard.mutex);
  write_all(shard.fd, shard.path, place.offset + offset, data);
}

}  // namespace cua::checkpoint
