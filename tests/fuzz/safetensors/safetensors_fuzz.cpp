// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file, and as a config.json. What is taken must be what another reading
// of the same bytes finds: a plain JSON tree, and a map of who owns each byte.
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config_json.h"
#include "checkpoint/safetensors.h"
#include "error.h"
#include "model/tensors.h"

namespace json = boost::json;
using cua::checkpoint::SafetensorsHeader;

namespace {

__extension__ using Wide = unsigned __int128;  // no product of the tests overflows it

constexpr std::string_view kFile = "some.file";

void require(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "safetensors_fuzz: %s\n", what);
  std::abort();
}

void check_error(const cua::Error &error, bool unsupported_too) {
  require(error.code() == CUA_BAD_MODEL || (unsupported_too && error.code() == CUA_UNSUPPORTED),
          "another code than BAD_MODEL");
  const std::string_view message = error.what();
  require(message.substr(0, kFile.size()) == kFile, "a message that does not name the file");
  require(message.size() < 1024, "a message that the ABI would cut");
  for (const char c : message) {
    require(static_cast<unsigned char>(c) >= 0x20, "a message of several lines");
  }
  require(std::strlen(error.what()) == std::string(error.what()).size(), "a NUL in a message");
}

// ---- a file ------------------------------------------------------------------------------------

uint64_t bits_of(std::string_view dtype) {
  if (dtype == "F4") return 4;
  if (dtype == "F6_E2M3" || dtype == "F6_E3M2") return 6;
  if (dtype == "BOOL" || dtype == "U8" || dtype == "I8" || dtype.substr(0, 3) == "F8_") return 8;
  if (dtype == "I16" || dtype == "U16" || dtype == "F16" || dtype == "BF16") return 16;
  if (dtype == "I32" || dtype == "U32" || dtype == "F32") return 32;
  if (dtype == "I64" || dtype == "U64" || dtype == "F64" || dtype == "C64") return 64;
  require(false, "a dtype taken that the format does not have");
  return 0;
}

void check_header(const std::vector<std::byte> &bytes, const SafetensorsHeader &header) {
  uint64_t length;
  require(bytes.size() >= sizeof length, "a file without a length taken");
  std::memcpy(&length, bytes.data(), sizeof length);
  require(length <= bytes.size() - sizeof length, "a header beyond the end taken");
  const size_t data = sizeof length + length;

  const std::string text(reinterpret_cast<const char *>(bytes.data()) + sizeof length, length);
  json::error_code error;
  const json::value tree = json::parse(text, error);
  require(!error, "a header that is not JSON taken");
  require(tree.is_object(), "a header that is no object taken");
  const json::object &object = tree.get_object();
  require(object.size() - object.count("__metadata__") == header.size(),
          "another number of tensors");

  std::vector<bool> owned(bytes.size() - data);
  for (const auto &[name, entry] : header) {
    const json::value *const value = object.if_contains(name);
    require(value != nullptr, "a tensor that the header does not hold");
    require(value->at("dtype").as_string() == entry.dtype, "another dtype");
    const json::array &offsets = value->at("data_offsets").as_array();
    require(offsets.size() == 2 && offsets[0].to_number<uint64_t>() + data == entry.begin &&
                offsets[1].to_number<uint64_t>() + data == entry.end,
            "other offsets");
    const json::array &shape = value->at("shape").as_array();
    require(shape.size() == entry.shape.size(), "another number of dimensions");
    Wide bits = bits_of(entry.dtype);
    for (size_t i = 0; i < shape.size(); ++i) {
      require(shape[i].to_number<uint64_t>() == entry.shape[i], "another shape");
      require(bits <= UINT64_MAX, "a size beyond 64 bits");
      bits *= entry.shape[i];
    }
    require(entry.begin >= data && entry.begin <= entry.end && entry.end <= bytes.size(),
            "bytes outside the file");
    require(bits == static_cast<Wide>(entry.end - entry.begin) * 8, "another size");
    for (size_t at = entry.begin; at < entry.end; ++at) {
      require(!owned[at - data], "a byte of two tensors");
      owned[at - data] = true;
    }
  }
  for (const bool byte : owned) require(byte, "a byte of no tensor");
}

bool run_file(const std::vector<std::byte> &bytes) {
  SafetensorsHeader header;
  try {
    header = cua::checkpoint::parse_safetensors(bytes, std::string(kFile));
  } catch (const cua::Error &error) {
    check_error(error, false);
    return false;
  }
  check_header(bytes, header);
  return true;
}

// ---- a configuration ---------------------------------------------------------------------------

void run_config(std::string_view text) {
  cua::model::Config config;
  try {
    config = cua::checkpoint::parse_config(text, std::string(kFile));
  } catch (const cua::Error &error) {
    check_error(error, true);
    return;
  }
  require(
      config.rotary_dim >= 2 && config.rotary_dim % 2 == 0 && config.rotary_dim <= config.head_dim,
      "rotary dimensions that cannot be");
  require(config.kv_heads > 0 && config.heads % config.kv_heads == 0, "heads without a KV head");
  require(config.gdn_key_heads > 0 && config.gdn_value_heads % config.gdn_key_heads == 0,
          "value heads without a key head");
  require(config.rms_norm_eps > 0 && config.rope_theta > 1, "eps or theta that cannot be");
  require(!config.layers.empty(), "no layers");
  for (const cua::model::TensorSpec &spec : cua::model::tensors(config)) {
    Wide bytes = 4;
    for (const uint64_t extent : spec.shape) {
      require(extent > 0, "an empty tensor");
      bytes *= extent;
      require(bytes < (uint64_t{1} << 62), "a tensor whose size overflows");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const auto *const first = reinterpret_cast<const std::byte *>(data);
  std::vector<std::byte> bytes(first, first + size);
  if (size > 0 && data[0] == '{') run_config({reinterpret_cast<const char *>(data), size});
  run_file(bytes);
  // Most changes break the length of the header: once more with one that lies in the file, so that
  // what is behind it is reached.
  if (size > sizeof(uint64_t)) {
    uint64_t length;
    std::memcpy(&length, data, sizeof length);
    length %= size - sizeof length + 1;
    std::memcpy(bytes.data(), &length, sizeof length);
    run_file(bytes);
  }
  return 0;
}
