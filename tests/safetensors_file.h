// SPDX-License-Identifier: Apache-2.0
// Reads and writes small safetensors files for tests, apart from the library's own reader.
#pragma once
#include <boost/json.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace cua::test {

struct FileTensor {
  std::string dtype;  // as in the file: "BF16", "F32", ...
  std::vector<uint64_t> shape;
  std::string bytes;

  std::vector<float> values() const {
    std::vector<float> values;
    const size_t size = dtype == "BF16" ? 2 : 4;
    if (dtype != "BF16" && dtype != "F32") throw std::runtime_error("dtype " + dtype);
    for (size_t i = 0; i + size <= bytes.size(); i += size) {
      uint32_t bits = 0;
      std::memcpy(reinterpret_cast<char *>(&bits) + (4 - size), bytes.data() + i, size);
      float value;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
    }
    return values;
  }
  static FileTensor f32(std::vector<uint64_t> shape, const std::vector<float> &values) {
    FileTensor tensor{"F32", std::move(shape), std::string(values.size() * 4, '\0')};
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return tensor;
  }
};

using FileTensors = std::map<std::string, FileTensor>;

inline std::string read_bytes(const std::filesystem::path &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::filesystem::path &path, const std::string &bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.flush();
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

inline FileTensors read_safetensors(const std::filesystem::path &path) {
  const std::string bytes = read_bytes(path);
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  FileTensors tensors;
  const boost::json::value header = boost::json::parse(bytes.substr(8, length));
  for (const auto &[name, entry] : header.as_object()) {
    if (name == "__metadata__") continue;
    FileTensor tensor{std::string(entry.at("dtype").as_string()), {}, {}};
    for (const auto &extent : entry.at("shape").as_array()) {
      tensor.shape.push_back(extent.to_number<uint64_t>());
    }
    const auto begin = entry.at("data_offsets").at(0).to_number<uint64_t>();
    const auto end = entry.at("data_offsets").at(1).to_number<uint64_t>();
    tensor.bytes = bytes.substr(8 + length + begin, end - begin);
    tensors[std::string(name)] = std::move(tensor);
  }
  return tensors;
}

inline void write_safetensors(const std::filesystem::path &path, const FileTensors &tensors) {
  boost::json::object header;
  uint64_t offset = 0;
  std::string data;
  for (const auto &[name, tensor] : tensors) {
    boost::json::array shape(tensor.shape.begin(), tensor.shape.end());
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", shape},
                    {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
    data += tensor.bytes;
  }
  std::string text = boost::json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  write_bytes(path, bytes + text + data);
}

}  // namespace cua::test
