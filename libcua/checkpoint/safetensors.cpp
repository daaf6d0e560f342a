// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/printable.h"
#include "error.h"

namespace cua::checkpoint {
namespace {

namespace json = boost::json;

constexpr uint64_t kLargestHeader = 100'000'000;  // bytes; the format's own limit
constexpr size_t kMostDimensions = 16;

// Bits of an element of each dtype of the format.
std::optional<uint64_t> element_bits(std::string_view dtype) {
  static constexpr std::pair<std::string_view, uint64_t> kDtypes[] = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  for (const auto &[name, bits] : kDtypes) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

// Reads a header event by event, so that a name that comes twice is seen.
class HeaderHandler {
 public:
  static constexpr std::size_t max_object_size = SIZE_MAX;
  static constexpr std::size_t max_array_size = SIZE_MAX;
  static constexpr std::size_t max_key_size = SIZE_MAX;
  static constexpr std::size_t max_string_size = SIZE_MAX;

  SafetensorsHeader entries;
  std::string fault;  // what stopped the parser, where it was not the JSON

  bool on_document_begin(json::error_code &) { return true; }
  bool on_document_end(json::error_code &) { return true; }

  bool on_object_begin(json::error_code &ec) {
    if (depth_ == 2 && !metadata_)
      return fail(ec, where() + "holds an object in \"" + printable(field_) + "\"");
    if (depth_ >= 2 && metadata_) return fail(ec, "__metadata__ holds an object");
    ++depth_;
    if (depth_ == 2) dtype_ = shape_ = offsets_ = false;
    return true;
  }
  bool on_object_end(std::size_t, json::error_code &ec) {
    if (depth_ == 2 && !metadata_) {
      if (!dtype_ || !shape_ || !offsets_) {
        return fail(ec, where() + "lacks \"" +
                            (!dtype_   ? "dtype"
                             : !shape_ ? "shape"
                                       : "data_offsets") +
                            "\"");
      }
      entries.emplace(name_, std::move(entry_));
      entry_ = {};
    }
    --depth_;
    return true;
  }
  bool on_array_begin(json::error_code &ec) {
    if (depth_ == 0) return fail(ec, "the header is not a JSON object");
    if (in_array_ || depth_ != 2 || metadata_ || (field_ != "shape" && field_ != "data_offsets")) {
      return fail(ec, where() + "holds an array where there should be none");
    }
    in_array_ = true;
    numbers_.clear();
    return true;
  }
  bool on_array_end(std::size_t, json::error_code &ec) {
    in_array_ = false;
    if (field_ == "shape") {
      if (std::exchange(shape_, true)) return fail(ec, where() + "has two shapes");
      entry_.shape = numbers_;
    } else {
      if (std::exchange(offsets_, true)) return fail(ec, where() + "has two data_offsets");
      if (numbers_.size() != 2) return fail(ec, where() + "has data_offsets that are not a pair");
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code &) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code &ec) {
    text_.append(part.data(), part.size());
    if (depth_ == 1) {
      name_ = std::exchange(text_, {});
      metadata_ = name_ == "__metadata__";
      if (metadata_ && std::exchange(metadata_seen_, true)) return fail(ec, "two __metadata__");
      if (entries.find(name_) != entries.end()) return fail(ec, where() + "appears twice");
    } else {
      field_ = std::exchange(text_, {});
    }
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code &) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code &ec) {
    text_.append(part.data(), part.size());
    std::string value = std::exchange(text_, {});
    if (depth_ == 0) return fail(ec, "the header is not a JSON object");
    if (metadata_ && depth_ == 2) return true;
    if (depth_ != 2 || in_array_ || field_ != "dtype") return unexpected(ec, "a string");
    if (std::exchange(dtype_, true)) return fail(ec, where() + "has two dtypes");
    entry_.dtype = std::move(value);
    return true;
  }
  bool on_number_part(json::string_view, json::error_code &) { return true; }
  bool on_int64(int64_t value, json::string_view, json::error_code &ec) {
    if (value < 0) return fail(ec, where() + "holds a negative number");
    return on_uint64(static_cast<uint64_t>(value), {}, ec);
  }
  bool on_uint64(uint64_t value, json::string_view, json::error_code &ec) {
    if (!in_array_) return unexpected(ec, "a number");
    if (numbers_.size() == kMostDimensions) {
      return fail(ec, where() + "has more than " + std::to_string(kMostDimensions) + " dimensions");
    }
    numbers_.push_back(value);
    return true;
  }
  bool on_double(double, json::string_view, json::error_code &ec) {
    return fail(ec, where() + "holds a number that is not a whole one of 64 bits");
  }
  bool on_bool(bool, json::error_code &ec) { return unexpected(ec, "a boolean"); }
  bool on_null(json::error_code &ec) { return unexpected(ec, "null"); }
  bool on_comment_part(json::string_view, json::error_code &) { return true; }
  bool on_comment(json::string_view, json::error_code &) { return true; }

 private:
  std::string where() const {
    return depth_ == 0 ? "the header " : "tensor " + printable(name_) + ": the header ";
  }
  bool unexpected(json::error_code &ec, const char *what) {
    if (depth_ == 0) return fail(ec, "the header is not a JSON object");
    return fail(ec, where() + "holds " + what + " where there should be none");
  }
  bool fail(json::error_code &ec, std::string what) {
    fault = std::move(what);
    ec = json::error::syntax;
    return false;
  }

  int depth_ = 0;
  bool metadata_ = false, metadata_seen_ = false, in_array_ = false;
  bool dtype_ = false, shape_ = false, offsets_ = false;
  std::string name_, field_, text_;
  std::vector<uint64_t> numbers_;
  SafetensorsEntry entry_;
};

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::string &file) {
  const auto fail = [&](const std::string &what) {
    throw Error(CUA_BAD_MODEL, file + ": " + what);
  };
  uint64_t length = 0;
  if (bytes.size() < sizeof length) {
    fail("has " + std::to_string(bytes.size()) +
         " bytes, fewer than the 8 of a header length; "
         "the file is cut or not safetensors");
  }
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kLargestHeader) {
    fail("claims a header of " + std::to_string(length) + " bytes, over the limit of " +
         std::to_string(kLargestHeader) + "; the file is damaged or not safetensors");
  }
  if (length > bytes.size() - sizeof length) {
    fail("claims a header of " + std::to_string(length) + " bytes, but only " +
         std::to_string(bytes.size() - sizeof length) + " follow; the file is cut");
  }
  if (length == 0) fail("has an empty header");

  const uint64_t data_begin = sizeof length + length;
  const uint64_t data_bytes = bytes.size() - data_begin;
  json::parse_options options;
  options.max_depth = 8;
  json::basic_parser<HeaderHandler> parser(options);
  json::error_code error;
  const char *const text = reinterpret_cast<const char *>(bytes.data()) + sizeof length;
  if (*text != '{') fail("the header does not begin with {; the file is not safetensors");
  const size_t used = parser.write_some(false, text, length, error);
  if (!parser.handler().fault.empty()) fail(parser.handler().fault);
  if (error) fail("the header is not valid JSON: " + error.message());
  if (!std::all_of(text + used, text + length, [](char c) { return c == ' ' || c == '\n'; })) {
    fail("the header is followed by other text");
  }

  SafetensorsHeader header = std::move(parser.handler().entries);
  std::vector<std::pair<uint64_t, SafetensorsHeader::iterator>> order;
  for (auto it = header.begin(); it != header.end(); ++it) {
    auto &[name, entry] = *it;
    const std::string tensor = "tensor " + printable(name) + ": ";
    const auto bits = element_bits(entry.dtype);
    if (!bits) fail(tensor + "dtype \"" + printable(entry.dtype) + "\" is unknown");
    if (entry.begin > entry.end || entry.end > data_bytes) {
      fail(tensor + "its bytes [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) +
           ") are outside the file, whose data have " + std::to_string(data_bytes) + " bytes");
    }
    uint64_t size = *bits;  // in bits
    for (const uint64_t extent : entry.shape) {
      if (__builtin_mul_overflow(size, extent, &size)) fail(tensor + "its shape overflows");
    }
    if (size % 8 != 0) fail(tensor + "its shape does not fill whole bytes");
    if (size / 8 != entry.end - entry.begin) {
      fail(tensor + "its shape needs " + std::to_string(size / 8) + " bytes, the header gives it " +
           std::to_string(entry.end - entry.begin));
    }
    order.emplace_back(entry.begin, it);
  }
  std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
    return std::pair(a.first, a.second->second.end) < std::pair(b.first, b.second->second.end);
  });
  uint64_t covered = 0;
  for (const auto &[begin, it] : order) {
    const std::string tensor = "tensor " + printable(it->first) + ": ";
    if (begin < covered) fail(tensor + "its bytes overlap those of another tensor");
    if (begin > covered) {
      fail(tensor + "there is a hole of " + std::to_string(begin - covered) + " bytes before it");
    }
    covered = it->second.end;
  }
  if (covered != data_bytes) {
    fail(std::to_string(data_bytes - covered) + " bytes after the last tensor belong to none");
  }
  for (auto &[name, entry] : header) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path &path)
    : path_(path.string()), file_(path), header_(parse_safetensors(file_.bytes(), path_)) {}

backend::HostTensor SafetensorsFile::tensor(const std::string &name) const {
  const SafetensorsEntry &entry = header_.at(name);
  if (entry.dtype != "BF16" && entry.dtype != "F32") {
    throw Error(CUA_BAD_MODEL, path_ + ": tensor " + printable(name) + ": dtype " + entry.dtype +
                                   "; BF16 or F32 is needed");
  }
  return {entry.dtype == "BF16" ? backend::Dtype::bf16 : backend::Dtype::f32, entry.shape,
          file_.bytes().data() + entry.begin};
}

}  // namespace cua::checkpoint
