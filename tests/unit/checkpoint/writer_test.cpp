// SPDX-License-Identifier: Apache-2.0
// Shards of at most 5 GB and their index, read back. The data are holes: they take no space.
#include <boost/json.hpp>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "folder.h"

using namespace cua;
using checkpoint::OutputTensor;
using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsWriter;
using test::Folder;

namespace {

constexpr uint64_t kGiga = 1'000'000'000;

OutputTensor tensor(const std::string &name, uint64_t bytes) {
  return {name, backend::Dtype::f32, {bytes / 4}};
}

}  // namespace

TEST_CASE("a shard has 5 GB at most, unless one tensor is larger") {
  const Folder folder;
  const std::vector<OutputTensor> tensors{tensor("a", 2 * kGiga), tensor("b", 3 * kGiga),
                                          tensor("c", 5 * kGiga), tensor("d", 6 * kGiga),
                                          tensor("e", 4),         tensor("f", 5 * kGiga)};
  const std::vector<std::vector<std::string>> shards{{"a", "b"}, {"c"}, {"d"}, {"e"}, {"f"}};
  {
    const SafetensorsWriter writer(folder.path(), tensors);
    CHECK(writer.bytes() == 21 * kGiga + 4);
    const std::string data = "last";
    writer.write(5, 5 * kGiga - 4, std::as_bytes(std::span(data)));
  }
  const boost::json::value index =
      boost::json::parse(test::read_bytes(folder / "model.safetensors.index.json"));
  CHECK(index.at("metadata").at("total_size") == 21 * kGiga + 4);
  CHECK(index.at("weight_map").as_object().size() == tensors.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = "model-0000" + std::to_string(i + 1) + "-of-00005.safetensors";
    const SafetensorsFile file(folder / name);
    CHECK(file.header().size() == shards[i].size());
    for (const std::string &held : shards[i]) {
      CHECK(file.header().count(held) == 1);
      CHECK(index.at("weight_map").at(held) == name.c_str());
    }
  }
  const SafetensorsFile last(folder / "model-00005-of-00005.safetensors");
  const std::byte *const end = last.tensor("f").data + 5 * kGiga;
  CHECK(std::string(reinterpret_cast<const char *>(end) - 4, 4) == "last");
}

TEST_CASE("what fits one shard has no index, and a file that is there is not overwritten") {
  const Folder folder;
  const std::vector<OutputTensor> tensors{tensor("a", 8), tensor("b", 5 * kGiga - 8)};
  const SafetensorsWriter writer(folder.path(), tensors);
  CHECK(test::fs::exists(folder / "model.safetensors"));
  CHECK(!test::fs::exists(folder / "model.safetensors.index.json"));
  CHECK(SafetensorsFile(folder / "model.safetensors").header().size() == 2);
  CHECK_THROWS_AS(SafetensorsWriter(folder.path(), tensors), Error);
}
