// SPDX-License-Identifier: Apache-2.0
// Model folders: good ones of every layout, and each way of being damaged.
#include "checkpoint/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstring>
#include <fstream>

#include "checkpoint/config_json.h"
#include "checkpoint/marker.h"
#include "folder.h"
#include "model/tensors.h"

using namespace cua;
using checkpoint::Checkpoint;
using checkpoint::MarkerPolicy;
using test::check_refused;
using test::FileTensor;
using test::FileTensors;
using test::Folder;
using test::kGolden;
namespace json = boost::json;

namespace {

// Rewrites the tensors of a one-file folder.
void edit_tensors(const Folder &folder, const std::function<void(FileTensors &)> &edit) {
  FileTensors tensors = test::read_safetensors(folder / "model.safetensors");
  edit(tensors);
  test::write_safetensors(folder / "model.safetensors", tensors);
}

void edit_json(const test::fs::path &path, const std::function<void(json::object &)> &edit) {
  json::object object = json::parse(test::read_bytes(path)).as_object();
  edit(object);
  test::write_bytes(path, json::serialize(object));
}

void write_marker(const Folder &folder, const std::string &text) {
  test::write_bytes(folder / checkpoint::kMarkerFile, text);
}

constexpr char kShard1[] = "model-00001-of-00002.safetensors";
constexpr char kShard2[] = "model-00002-of-00002.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

}  // namespace

TEST_CASE("the golden folders open, each layout") {
  for (const char *name : {"tiny", "wide", "mid"}) {
    const Checkpoint checkpoint(kGolden / name, MarkerPolicy::optional);
    const auto specs = model::tensors(checkpoint.config());
    for (const model::TensorSpec &spec : specs) {
      CAPTURE(name, spec.name);
      CHECK(checkpoint.tensor(spec.name).shape == spec.shape);
      CHECK(checkpoint.tensor(spec.name).data != nullptr);
    }
    CHECK(!checkpoint.model_id());
    CHECK(!checkpoint.tokenizer_json());
  }
  const Checkpoint wide(kGolden / "wide", MarkerPolicy::optional);
  const model::Config &config = wide.config();
  CHECK(config.vocabulary == 640);
  CHECK(config.hidden == 192);
  CHECK(config.intermediate == 320);
  CHECK(config.heads == 4);
  CHECK(config.kv_heads == 1);
  CHECK(config.head_dim == 256);
  CHECK(config.rotary_dim == 64);
  CHECK(config.rope_theta == 1e7);
  CHECK(config.gdn_key_heads == 2);
  CHECK(config.gdn_value_heads == 4);
  CHECK(config.gdn_key_dim == 128);
  CHECK(config.gdn_value_dim == 128);
  CHECK(config.layers.size() == 4);
  CHECK(config.layers[3] == model::LayerKind::attention);
  CHECK(wide.tensor("layers.0.linear_attn.A_log").dtype == backend::Dtype::f32);
  CHECK(wide.tensor("layers.0.linear_attn.dt_bias").dtype == backend::Dtype::bf16);
}

TEST_CASE("the values are those of the file") {
  const Checkpoint checkpoint(kGolden / "tiny", MarkerPolicy::optional);
  for (const auto &[name, tensor] : test::read_safetensors(kGolden / "tiny/model.safetensors")) {
    const auto &got = checkpoint.tensor(name.substr(std::string("model.").size()));
    CAPTURE(name);
    REQUIRE(got.bytes() == tensor.bytes.size());
    CHECK(std::memcmp(got.data, tensor.bytes.data(), tensor.bytes.size()) == 0);
  }
}

TEST_CASE("the marker") {
  const Folder folder(kGolden / "tiny");
  check_refused(folder.path(), CUA_BAD_MODEL,
                {"cua_s1_export.json", "cua-export merge", folder.path()}, MarkerPolicy::required);
  write_marker(folder, R"({"format":"cua-s1-text-merged/1","model":"my/model","free":[1,{}]})");
  CHECK(Checkpoint(folder.path()).model_id() == "my/model");
  write_marker(folder, R"({"format":"cua-s1-text-merged/1","model":null})");
  CHECK(!Checkpoint(folder.path()).model_id());
  for (const char *text : {"", "{", "[]", "{}", R"({"format":null})", R"({"format":1})",
                           R"({"format":"cua-s1-text-merged/2"})", R"({"format":"other"})",
                           R"({"format":"cua-s1-text-merged/1","model":3})",
                           R"({"format":"cua-s1-text-merged/1","model":""})"}) {
    write_marker(folder, text);
    CAPTURE(text);
    for (const auto policy : {MarkerPolicy::required, MarkerPolicy::optional}) {
      check_refused(folder.path(), CUA_BAD_MODEL, {"cua_s1_export.json"}, policy);
    }
  }
}

TEST_CASE("folders that are none") {
  const Folder folder(kGolden / "tiny");
  check_refused(folder / "nowhere", CUA_BAD_MODEL, {"nowhere", "does not exist"});
  check_refused(folder / "config.json", CUA_BAD_MODEL, {"config.json", "not a folder"});
  check_refused("", CUA_BAD_MODEL, {"does not exist"});
  const Folder empty;
  check_refused(empty.path(), CUA_BAD_MODEL, {"config.json"});
  test::fs::rename(folder / "model.safetensors", folder / "elsewhere");
  check_refused(folder.path(), CUA_BAD_MODEL, {"model.safetensors"});
  test::fs::create_directory(folder / "model.safetensors");
  check_refused(folder.path(), CUA_BAD_MODEL, {"model.safetensors", "not a regular file"});
  test::fs::remove(folder / "model.safetensors");
  test::fs::create_symlink(folder / "elsewhere", folder / "model.safetensors");
  CHECK(test::refusal(folder.path()).code == CUA_OK);
  test::fs::remove(folder / "elsewhere");  // the link leads nowhere now
  check_refused(folder.path(), CUA_BAD_MODEL, {"model.safetensors"});
}

TEST_CASE("files that may not be read") {
  if (::geteuid() == 0) return;  // root reads everything
  const Folder folder(kGolden / "tiny");
  test::fs::permissions(folder / "model.safetensors", test::fs::perms::none);
  check_refused(folder.path(), CUA_BAD_MODEL, {"model.safetensors", "ermission"});
}

TEST_CASE("a link that leads nowhere is not taken for a file that is not there") {
  for (const char *file :
       {"config.json", "model.safetensors", "cua_s1_export.json", "model.safetensors.index.json"}) {
    for (const char *target : {"nowhere", file}) {  // the second: a loop
      const Folder folder(kGolden / "tiny");
      test::fs::remove(folder / file);
      test::fs::create_symlink(target, folder / file);
      check_refused(folder.path(), CUA_BAD_MODEL, {file, "cannot open the file"});
    }
  }
  const Folder shards(kGolden / "wide");
  test::fs::remove(shards / kShard2);
  test::fs::create_symlink("nowhere", shards / kShard2);
  check_refused(shards.path(), CUA_BAD_MODEL, {kShard2, "cannot open the file"});
  const Folder folder(kGolden / "tiny");
  test::fs::create_symlink("nowhere", folder / "tokenizer.json");
  CHECK(Checkpoint(folder.path(), MarkerPolicy::optional).tokenizer_json() ==
        folder / "tokenizer.json");
}

TEST_CASE("a named pipe is refused, not waited for") {
  for (const char *file :
       {"config.json", "model.safetensors", "cua_s1_export.json", "model.safetensors.index.json"}) {
    const Folder folder(kGolden / "tiny");
    test::fs::remove(folder / file);
    REQUIRE(::mkfifo((folder / file).c_str(), 0600) == 0);
    check_refused(folder.path(), CUA_BAD_MODEL, {file, "not a regular file"});
  }
}

TEST_CASE("names from JSON files stay short and on one line in messages") {
  const std::string odd = std::string("a\0\n", 3) + std::string(5000, 'x');
  const auto short_line = [&](const Folder &folder) {
    const test::Refusal refused = test::refusal(folder.path());
    CAPTURE(refused.message);
    CHECK(refused.code != CUA_OK);
    CHECK(refused.message.find("a\\x00\\x0axxx") != std::string::npos);
    CHECK(refused.message.size() < 1024);
  };
  for (const char *field : {"model_type", "hidden_act"}) {
    const Folder folder(kGolden / "tiny");
    edit_json(folder / "config.json", [&](json::object &o) { o[field] = odd; });
    short_line(folder);
  }
  {
    const Folder folder(kGolden / "tiny");
    edit_json(folder / "config.json",
              [&](json::object &o) { o["rope_parameters"].as_object()["rope_type"] = odd; });
    short_line(folder);
    write_marker(folder, json::serialize(json::object{{"format", odd}}));
    short_line(folder);
  }
  for (const bool value : {false, true}) {
    const Folder folder(kGolden / "wide");
    edit_json(folder / kIndex, [&](json::object &o) {
      o["weight_map"].as_object()[value ? "a" : odd] = value ? odd + "/" : kShard1;
    });
    short_line(folder);
  }
  const Folder folder(kGolden / "tiny");
  edit_tensors(folder, [&](FileTensors &t) { t[odd] = t.at("model.norm.weight"); });
  short_line(folder);
}

TEST_CASE("damaged configurations") {
  const Folder folder(kGolden / "tiny");
  const auto refused = [&](int32_t code, const std::string &needle,
                           const std::function<void(json::object &)> &edit) {
    const std::string before = test::read_bytes(folder / "config.json");
    edit_json(folder / "config.json", edit);
    CAPTURE(needle);
    check_refused(folder.path(), code, {"config.json", needle});
    test::write_bytes(folder / "config.json", before);
  };
  for (const char *field :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "linear_conv_kernel_dim",
        "linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads",
        "linear_num_value_heads"}) {
    refused(CUA_BAD_MODEL, field, [&](json::object &o) { o.erase(field); });
    for (const json::value &value :
         {json::value(0), json::value(-1), json::value(1.5), json::value("64"), json::value(1e18),
          json::value(true), json::value(json::array{})}) {
      refused(CUA_BAD_MODEL, field, [&](json::object &o) { o[field] = value; });
    }
  }
  refused(CUA_BAD_MODEL, "rms_norm_eps", [](json::object &o) { o.erase("rms_norm_eps"); });
  for (const double eps : {-1e-6, 0.0, 1.5}) {
    refused(CUA_BAD_MODEL, "rms_norm_eps", [&](json::object &o) { o["rms_norm_eps"] = eps; });
  }
  refused(CUA_BAD_MODEL, "num_attention_heads", [](json::object &o) {
    o["num_attention_heads"] = 3;
    o["num_key_value_heads"] = 2;
  });
  refused(CUA_BAD_MODEL, "linear_num_value_heads",
          [](json::object &o) { o["linear_num_value_heads"] = 5; });
  refused(CUA_BAD_MODEL, "layer_types",
          [](json::object &o) { o["layer_types"] = {"full_attention"}; });
  refused(CUA_UNSUPPORTED, "layer_types", [](json::object &o) {
    o["layer_types"] = {"sliding", "x", "x", "x"};
  });
  refused(CUA_UNSUPPORTED, "tie_word_embeddings",
          [](json::object &o) { o["tie_word_embeddings"] = false; });
  refused(CUA_UNSUPPORTED, "tie_word_embeddings",  // whose default is false
          [](json::object &o) { o.erase("tie_word_embeddings"); });
  for (const bool outer : {false, true}) {
    refused(CUA_UNSUPPORTED, "tie_word_embeddings", [&](json::object &o) {
      json::object inner = o;
      inner["tie_word_embeddings"] = outer;
      o = {{"text_config", inner}, {"tie_word_embeddings", !outer}};
    });
  }
  refused(CUA_UNSUPPORTED, "attention_bias", [](json::object &o) { o["attention_bias"] = true; });
  refused(CUA_UNSUPPORTED, "attn_output_gate",
          [](json::object &o) { o["attn_output_gate"] = false; });
  refused(CUA_UNSUPPORTED, "hidden_act", [](json::object &o) { o["hidden_act"] = "gelu"; });
  refused(CUA_UNSUPPORTED, "model_type", [](json::object &o) { o["model_type"] = "llama"; });
  refused(CUA_UNSUPPORTED, "model_type", [](json::object &o) { o.erase("model_type"); });
  refused(CUA_UNSUPPORTED, "rope_type",
          [](json::object &o) { o["rope_parameters"].as_object()["rope_type"] = "yarn"; });
  refused(CUA_BAD_MODEL, "rope_theta",
          [](json::object &o) { o["rope_parameters"].as_object()["rope_theta"] = 0; });
  refused(CUA_BAD_MODEL, "rope_theta",
          [](json::object &o) { o["rope_parameters"].as_object().erase("rope_theta"); });
  for (const double part : {0.0, -1.0, 1.5, 0.1, 1e300}) {  // 0.1 of 32 is 3
    refused(CUA_BAD_MODEL, "partial_rotary_factor", [&](json::object &o) {
      o["partial_rotary_factor"] = part;
      o["rope_parameters"].as_object()["partial_rotary_factor"] = part;
    });
  }
  for (const char *text : {"", "{", "[]", "null", "{}"}) {
    const std::string before = test::read_bytes(folder / "config.json");
    test::write_bytes(folder / "config.json", text);
    CAPTURE(text);
    CHECK(test::refusal(folder.path()).code != CUA_OK);
    test::write_bytes(folder / "config.json", before);
  }
  std::string deep(100'000, '[');
  test::write_bytes(folder / "config.json", deep);
  check_refused(folder.path(), CUA_BAD_MODEL, {"config.json"});
}

TEST_CASE("configurations of other spellings that mean the same") {
  const Folder folder(kGolden / "tiny");
  edit_json(folder / "config.json", [](json::object &o) {  // before rope_parameters
    o["rope_theta"] = o["rope_parameters"].at("rope_theta");
    o.erase("rope_parameters");
    o["layer_types"] = nullptr;
    o["full_attention_interval"] = 4;
  });
  const Checkpoint checkpoint(folder.path(), MarkerPolicy::optional);
  CHECK(checkpoint.config().rope_theta == 1e7);
  CHECK(checkpoint.config().rotary_dim == 8);
  CHECK(checkpoint.config().layers[3] == model::LayerKind::attention);
  edit_json(folder / "config.json", [](json::object &o) { o.erase("partial_rotary_factor"); });
  const Checkpoint of_default(folder.path(), MarkerPolicy::optional);  // a quarter, as Transformers
  CHECK(of_default.config().rotary_dim == 8);
  edit_json(folder / "config.json", [](json::object &o) {
    json::object inner = o;
    o = {{"text_config", inner}, {"model_type", "qwen3_5"}};
  });
  CHECK(test::refusal(folder.path()).code == CUA_OK);
}

TEST_CASE("each dimension has its limit, and at all limits at once no size overflows") {
  const std::pair<const char *, uint32_t> limits[] = {{"vocab_size", 1u << 24},
                                                      {"hidden_size", 1u << 20},
                                                      {"intermediate_size", 1u << 20},
                                                      {"num_hidden_layers", 4096},
                                                      {"num_attention_heads", 4096},
                                                      {"num_key_value_heads", 4096},
                                                      {"head_dim", 4096},
                                                      {"linear_num_key_heads", 4096},
                                                      {"linear_num_value_heads", 4096},
                                                      {"linear_key_head_dim", 4096},
                                                      {"linear_value_head_dim", 4096},
                                                      {"linear_conv_kernel_dim", 64}};
  json::object config = json::parse(test::read_bytes(kGolden / "tiny/config.json")).as_object();
  config.erase("layer_types");
  for (const auto &[field, most] : limits) config[field] = most;
  const model::Config largest = checkpoint::parse_config(json::serialize(config), "config.json");
  CHECK(largest.layers.size() == 4096);
  for (const model::TensorSpec &spec : model::tensors(largest)) {
    double elements = 1;
    for (const uint64_t extent : spec.shape) elements *= static_cast<double>(extent);
    CAPTURE(spec.name);
    CHECK(elements < 0x1p50);
    CHECK(backend::HostTensor{backend::Dtype::f32, spec.shape, nullptr}.bytes() == 4 * elements);
  }
  for (const auto &[field, most] : limits) {
    json::object beyond = config;
    beyond[field] = most + 1;
    CAPTURE(field);
    try {
      checkpoint::parse_config(json::serialize(beyond), "config.json");
      FAIL_CHECK("taken");
    } catch (const Error &error) {
      CHECK(error.code() == CUA_BAD_MODEL);
      CHECK(std::string(error.what()).find(field) != std::string::npos);
      CHECK(std::string(error.what()).find(std::to_string(most)) != std::string::npos);
    }
  }
}

TEST_CASE("fields of a configuration that older writers use") {
  json::object config = json::parse(test::read_bytes(kGolden / "tiny/config.json")).as_object();
  const auto parsed = [&] {
    return checkpoint::parse_config(json::serialize(config), "config.json");
  };
  config.erase("layer_types");
  config["num_hidden_layers"] = 7;
  using enum model::LayerKind;
  CHECK(parsed().layers == std::vector{gdn, gdn, gdn, attention, gdn, gdn, gdn});
  config["full_attention_interval"] = 3;
  CHECK(parsed().layers == std::vector{gdn, gdn, attention, gdn, gdn, attention, gdn});
  config.erase("rope_parameters");
  config.erase("partial_rotary_factor");
  config["rope_scaling"] = {{"type", "default"}, {"rope_theta", 5e5}};
  CHECK(parsed().rope_theta == 5e5);
  config["rope_theta"] = 1e4;  // Transformers, too, takes the one inside
  CHECK(parsed().rope_theta == 5e5);
  config["rope_scaling"] = nullptr;
  CHECK(parsed().rope_theta == 1e4);
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  CHECK_THROWS_AS(parsed(), Error);
}

TEST_CASE("JSON files of absurd sizes are refused unread") {
  const std::pair<const char *, uint64_t> files[] = {{"config.json", uint64_t{1} << 33},
                                                     {"cua_s1_export.json", uint64_t{1} << 33},
                                                     {kIndex, uint64_t{1} << 33},
                                                     {"config.json", (4u << 20) + 1}};
  for (const auto &[file, size] : files) {
    const Folder folder(kGolden / "tiny");
    std::ofstream(folder / file, std::ios::app).close();
    test::fs::resize_file(folder / file, size);  // a hole, which takes no space
    check_refused(folder.path(), CUA_BAD_MODEL, {file, std::to_string(size) + " bytes"});
  }
}

TEST_CASE("tensors that are missing, extra or of another shape or dtype") {
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const auto refused = [&](const std::vector<std::string> &needles,
                           const std::function<void(FileTensors &)> &edit) {
    const Folder folder(kGolden / "tiny");
    edit_tensors(folder, edit);
    check_refused(folder.path(), CUA_BAD_MODEL, needles);
  };
  for (const model::TensorSpec &spec :
       model::tensors(Checkpoint(kGolden / "tiny", MarkerPolicy::optional).config())) {
    CAPTURE(spec.name);
    refused({spec.name, "missing"}, [&](FileTensors &t) { t.erase("model." + spec.name); });
    refused({spec.name, "shape", "model.safetensors"}, [&](FileTensors &t) {
      FileTensor &tensor = t.at("model." + spec.name);
      tensor.shape.push_back(1);
    });
  }
  refused({name, "[64, 128]", "[128, 64]"}, [&](FileTensors &t) { t.at(name).shape = {64, 128}; });
  refused({"model.layers.9.norm.weight", "no such tensor"},
          [&](FileTensors &t) { t["model.layers.9.norm.weight"] = t.at("model.norm.weight"); });
  refused({"lm_head.weight", "tied"},
          [&](FileTensors &t) { t["lm_head.weight"] = t.at("model.norm.weight"); });
  for (const char *dtype : {"F16", "I16", "U16"}) {
    refused({name, dtype}, [&](FileTensors &t) { t.at(name).dtype = dtype; });
  }
  refused({name, "I32"}, [&](FileTensors &t) {
    t.at(name).dtype = "I32";
    t.at(name).bytes += t.at(name).bytes;
  });
  refused({"also in"}, [&](FileTensors &t) {  // both layouts at once
    t["model.language_model.norm.weight"] = t.at("model.norm.weight");
  });
  const Folder folder(kGolden / "tiny");  // what the text model has no use for may be anything
  edit_tensors(folder, [](FileTensors &t) {
    t["model.visual.x"] = {"F16", {3}, std::string(6, 'x')};
    t["mtp.y"] = {"I64", {}, std::string(8, 'x')};
  });
  CHECK(test::refusal(folder.path()).code == CUA_OK);
}

TEST_CASE("tensors in F32 open as such") {
  const Folder folder(kGolden / "tiny");
  edit_tensors(folder, [](FileTensors &t) {
    for (auto &[name, tensor] : t) tensor = FileTensor::f32(tensor.shape, tensor.values());
  });
  const Checkpoint checkpoint(folder.path(), MarkerPolicy::optional);
  CHECK(checkpoint.tensor("embed_tokens.weight").dtype == backend::Dtype::f32);
}

TEST_CASE("shards and their index") {
  const auto refused = [&](const std::vector<std::string> &needles,
                           const std::function<void(const Folder &)> &damage) {
    const Folder folder(kGolden / "wide");
    damage(folder);
    check_refused(folder.path(), CUA_BAD_MODEL, needles);
  };
  const auto edit_index = [](const std::function<void(json::object &)> &edit) {
    return [edit](const Folder &folder) {
      edit_json(folder / kIndex, [&](json::object &o) { edit(o["weight_map"].as_object()); });
    };
  };
  const std::string norm = "model.language_model.norm.weight";
  refused({kShard2, "missing"}, [](const Folder &f) { test::fs::remove(f / kShard2); });
  refused({kShard1}, [](const Folder &f) { test::fs::resize_file(f / kShard1, 5000); });
  refused({kShard1}, [](const Folder &f) { test::fs::resize_file(f / kShard1, 4); });
  refused({kShard1}, [](const Folder &f) {
    test::fs::resize_file(f / kShard1, test::fs::file_size(f / kShard1) - 1);
  });
  refused({kShard2, "after the last"}, [](const Folder &f) {
    test::fs::resize_file(f / kShard2, test::fs::file_size(f / kShard2) + 1);
  });
  refused({"tensor"}, [](const Folder &f) {  // swapped
    test::fs::rename(f / kShard1, f / "x");
    test::fs::rename(f / kShard2, f / kShard1);
    test::fs::rename(f / "x", f / kShard2);
  });
  refused({norm, "does not list"}, edit_index([&](json::object &o) { o.erase(norm); }));
  refused({"model.language_model.more", "lacks"},
          edit_index([](json::object &o) { o["model.language_model.more"] = kShard1; }));
  refused({norm, kShard1, "lacks"}, edit_index([&](json::object &o) { o[norm] = kShard1; }));
  refused({"gone.safetensors", "missing"},
          edit_index([&](json::object &o) { o["x"] = "gone.safetensors"; }));
  for (const char *file :
       {"../model.safetensors", "/etc/passwd", "..", ".", "", "a/b.safetensors"}) {
    refused({"weight_map", norm}, edit_index([&](json::object &o) { o[norm] = file; }));
  }
  refused({"weight_map", norm}, edit_index([&](json::object &o) { o[norm] = 3; }));
  refused({"model.safetensors", kIndex, "out of date"},
          [](const Folder &f) { test::fs::copy_file(f / kShard2, f / "model.safetensors"); });
  refused({kIndex, "weight_map"}, [](const Folder &f) { test::write_bytes(f / kIndex, "{}"); });
  refused({kIndex}, [](const Folder &f) { test::write_bytes(f / kIndex, "{\"weight_map\":{}}"); });
  refused({kIndex}, [](const Folder &f) { test::write_bytes(f / kIndex, "["); });
  refused({"also in"}, [&](const Folder &f) {  // one tensor in two shards
    FileTensors first = test::read_safetensors(f / kShard1),
                second = test::read_safetensors(f / kShard2);
    FileTensors &other = first.count(norm) != 0 ? second : first;
    other["model.norm.weight"] = (first.count(norm) != 0 ? first : second).at(norm);
    test::write_safetensors(f / kShard1, first);
    test::write_safetensors(f / kShard2, second);
    edit_json(f / kIndex, [&](json::object &o) {
      o["weight_map"].as_object()["model.norm.weight"] = &other == &first ? kShard1 : kShard2;
    });
  });
  const Folder renamed(kGolden / "wide");  // names come from the index, never from a pattern
  test::fs::rename(renamed / kShard1, renamed / "model.safetensors-00001-of-00002.safetensors");
  edit_json(renamed / kIndex, [](json::object &o) {
    for (auto &entry : o["weight_map"].as_object()) {
      if (entry.value() == kShard1) entry.value() = "model.safetensors-00001-of-00002.safetensors";
    }
  });
  CHECK(test::refusal(renamed.path()).code == CUA_OK);
}

TEST_CASE("an index may name model.safetensors alone") {
  const Folder folder(kGolden / "tiny");
  json::object map;
  for (const auto &[name, tensor] : test::read_safetensors(folder / "model.safetensors")) {
    map[name] = "model.safetensors";
  }
  test::write_bytes(folder / kIndex, json::serialize(json::object{{"weight_map", map}}));
  CHECK(test::refusal(folder.path()).code == CUA_OK);
}

TEST_CASE("an index that leaves out one of very many tensors is seen at once") {
  const Folder folder;
  test::fs::copy_file(kGolden / "tiny/config.json", folder / "config.json");
  std::string header = "{", map = "{\"weight_map\":{";
  for (int i = 0; i < 200'000; ++i) {
    const std::string name = "\"mtp." + std::to_string(i) + "\":";
    header += name + "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
    map += name + "\"model.safetensors\",";
  }
  header += "\"mtp.last\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
  map.back() = '}';
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  test::write_bytes(folder / "model.safetensors", bytes + header);
  test::write_bytes(folder / kIndex, map + "}");
  const auto start = std::chrono::steady_clock::now();
  check_refused(folder.path(), CUA_BAD_MODEL, {"mtp.last", "does not list"});
  // A second or less; a search of the whole list for each tensor takes a minute.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("nothing stays open or mapped after a refusal") {
  const auto descriptors = [] {
    size_t n = 0;
    for ([[maybe_unused]] const auto &entry : test::fs::directory_iterator("/proc/self/fd")) ++n;
    return n;
  };
  const auto mappings = [] {  // of files of the kind
    std::ifstream maps("/proc/self/maps");
    size_t n = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find(".safetensors") != std::string::npos) ++n;
    }
    return n;
  };
  const Folder folder(kGolden / "wide");
  test::fs::resize_file(folder / kShard2, test::fs::file_size(folder / kShard2) - 1);
  CHECK(test::refusal(folder.path()).code == CUA_BAD_MODEL);
  const size_t before = descriptors();
  for (int i = 0; i < 50; ++i) CHECK(test::refusal(folder.path()).code == CUA_BAD_MODEL);
  for (int i = 0; i < 50; ++i) CHECK(test::refusal(kGolden / "wide").code == CUA_OK);
  CHECK(descriptors() == before);
  CHECK(mappings() == 0);
  Checkpoint checkpoint(kGolden / "wide", MarkerPolicy::optional);
  CHECK(mappings() == 2);
  checkpoint = Checkpoint(kGolden / "tiny", MarkerPolicy::optional);
  CHECK(mappings() == 1);
}
