// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_file.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace json = boost::json;
using cua::Error;
using cua::tokenizer::byte_alphabet;
using cua::tokenizer::read_tokenizer_file;
using cua::tokenizer::Tokenizer;
using cua::tokenizer::TokenizerFile;

namespace {

// A file that is removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string &contents)
      : path_(std::filesystem::temp_directory_path() /
              ("tokenizer_file_test." + std::to_string(::getpid()) + ".json")) {
    std::ofstream(path_, std::ios::binary) << contents;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::filesystem::path &path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A small tokenizer: the bytes have the ids 1 to 256, then three merges and two added tokens.
json::object small_tokenizer() {
  json::object vocabulary;
  for (unsigned byte = 0; byte < 256; ++byte) vocabulary[byte_alphabet()[byte]] = byte + 1;
  vocabulary["ab"] = 257;
  vocabulary["abc"] = 0;
  vocabulary["bc"] = 258;
  const auto added = [](const char *content, int id, bool special) {
    return json::object{{"id", id},          {"content", content}, {"single_word", false},
                        {"lstrip", false},   {"rstrip", false},    {"normalized", false},
                        {"special", special}};
  };
  const json::object byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", false},
                                   {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array{added("<x>", 300, true), added("<x>y", 301, false)}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers", json::array{json::object{{"type", "Split"},
                                                       {"pattern", {{"Regex", R"([\p{L}\p{M}]+)"}}},
                                                       {"behavior", "Isolated"},
                                                       {"invert", false}},
                                          byte_level}}}},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", ""},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges",
             json::array{json::array{"a", "b"}, json::array{"b", "c"}, json::array{"ab", "c"}}}}}};
}

TokenizerFile read(const json::object &document) {
  return read_tokenizer_file(TemporaryFile(json::serialize(document)).path());
}

using Change = std::function<void(json::object &)>;

// At a JSON pointer.
Change set(const char *pointer, json::value value) {
  return [=](json::object &document) {
    json::value whole(document);
    whole.at_pointer(pointer) = value;
    document = whole.get_object();
  };
}
Change set_in(const char *pointer, const char *key, json::value value) {
  return [=](json::object &document) {
    json::value whole(document);
    whole.at_pointer(pointer).as_object()[key] = value;
    document = whole.get_object();
  };
}
Change remove(const char *pointer, const char *key) {
  return [=](json::object &document) {
    json::value whole(document);
    whole.at_pointer(pointer).as_object().erase(key);
    document = whole.get_object();
  };
}

struct Refusal {
  Change change;
  int32_t code;
  const char *named;  // must be in the message
};

void check_refused(const std::string &contents, int32_t code, const std::string &named) {
  const TemporaryFile file(contents);
  try {
    read_tokenizer_file(file.path());
    FAIL("taken, although " << named);
  } catch (const Error &error) {
    INFO(error.what());
    CHECK(error.code() == code);
    CHECK(std::string_view(error.what()).starts_with(file.path().string()));
    CHECK(std::string_view(error.what()).find(named) != std::string_view::npos);
  }
}

}  // namespace

TEST_CASE("the small tokenizer reads as it was written") {
  const TokenizerFile file = read(small_tokenizer());
  CHECK(file.byte_ids[0] == 1);
  CHECK(file.byte_ids[255] == 256);
  CHECK(file.split_pattern == R"([\p{L}\p{M}]+)");
  CHECK(file.vocabulary == 302);
  REQUIRE(file.merges.size() == 3);
  CHECK(file.merges[2].left == 257);
  CHECK(file.merges[2].right == 'c' + 1);
  CHECK(file.merges[2].result == 0);
  REQUIRE(file.added_tokens.size() == 2);
  CHECK(file.added_tokens[1].content == "<x>y");
  CHECK(file.added_tokens[1].id == 301);
}

TEST_CASE("the small tokenizer encodes") {
  const TemporaryFile file(json::serialize(small_tokenizer()));
  const Tokenizer tokenizer(file.path());
  using Ids = std::vector<uint32_t>;
  CHECK(tokenizer.encode("") == Ids{});
  CHECK(tokenizer.encode("abc") == Ids{0});
  CHECK(tokenizer.encode("bcab") == Ids{258, 257});
  CHECK(tokenizer.encode("ab1c") == Ids{257, '1' + 1, 'c' + 1});
  CHECK(tokenizer.encode("ab<x>c<x>yc<x") ==
        Ids{257, 300, 'c' + 1, 301, 'c' + 1, '<' + 1, 'x' + 1});
  // An added token is looked for before normalisation, which does not see past it.
  CHECK(tokenizer.encode("<x>\xCC\x81") == Ids{300, 0xCC + 1, 0x81 + 1});
  CHECK(tokenizer.encode("e\xCC\x81") == Ids{0xC3 + 1, 0xA9 + 1});
  CHECK(tokenizer.vocabulary() == 302);
  CHECK(tokenizer.letters()[25] == 'Z' + 1);
}

TEST_CASE("merges may be strings, and may begin with a version line") {
  json::object document = small_tokenizer();
  document["model"].as_object()["merges"] = json::array{"#version: 0.2", "a b", "b c", "ab c"};
  const TokenizerFile file = read(document);
  REQUIRE(file.merges.size() == 3);
  CHECK(file.merges[0].result == 257);
  CHECK(file.merges[2].result == 0);
}

TEST_CASE("harmless variations are taken") {
  for (const Change &change : std::vector<Change>{
           remove("", "truncation"), remove("", "padding"), remove("", "post_processor"),
           remove("", "decoder"), remove("", "added_tokens"), set("/post_processor", nullptr),
           set("/added_tokens", json::array{}), remove("/model", "ignore_merges"),
           remove("/model", "dropout"), set("/model/unk_token", nullptr),
           set("/model/fuse_unk", true), set("/model/merges", json::array{}),
           set_in("", "comment", "any")}) {
    json::object document = small_tokenizer();
    change(document);
    CHECK_NOTHROW(read(document));
  }
}

TEST_CASE("each configuration that is not implemented is refused by name") {
  const std::vector<Refusal> refusals = {
      {set("/truncation", json::object{{"max_length", 5}}), CUA_UNSUPPORTED, "truncation"},
      {set("/padding", json::object{{"length", 5}}), CUA_UNSUPPORTED, "padding"},
      {set("/normalizer/type", "NFKC"), CUA_UNSUPPORTED, "normalizer.type is \"NFKC\""},
      {set("/normalizer", nullptr), CUA_BAD_MODEL, "normalizer"},
      {remove("", "normalizer"), CUA_BAD_MODEL, "normalizer is missing"},
      {remove("", "pre_tokenizer"), CUA_BAD_MODEL, "pre_tokenizer is missing"},
      {set("/pre_tokenizer/type", "ByteLevel"), CUA_UNSUPPORTED, "pre_tokenizer.type"},
      {set("/pre_tokenizer/pretokenizers", json::array{}), CUA_UNSUPPORTED, "pre_tokenizer"},
      {set("/pre_tokenizer/pretokenizers/0/type", "Digits"), CUA_UNSUPPORTED, "Digits"},
      {set("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), CUA_UNSUPPORTED, "behavior"},
      {set("/pre_tokenizer/pretokenizers/0/invert", true), CUA_UNSUPPORTED, "invert"},
      {set("/pre_tokenizer/pretokenizers/0/pattern", json::object{{"String", "a"}}),
       CUA_UNSUPPORTED, "pattern"},
      {set("/pre_tokenizer/pretokenizers/1/use_regex", true), CUA_UNSUPPORTED, "use_regex"},
      {set("/pre_tokenizer/pretokenizers/1/add_prefix_space", true), CUA_UNSUPPORTED,
       "add_prefix_space"},
      {remove("/pre_tokenizer/pretokenizers/1", "use_regex"), CUA_BAD_MODEL,
       "use_regex is missing"},
      {set("/pre_tokenizer/pretokenizers/1/type", "Metaspace"), CUA_UNSUPPORTED, "Metaspace"},
      {set("/post_processor/type", "TemplateProcessing"), CUA_UNSUPPORTED, "post_processor.type"},
      {set("/post_processor", 1), CUA_BAD_MODEL, "post_processor"},
      {remove("", "model"), CUA_BAD_MODEL, "model is missing"},
      {set("/model/type", "Unigram"), CUA_UNSUPPORTED, "model.type is \"Unigram\""},
      {set("/model/dropout", 0.1), CUA_UNSUPPORTED, "model.dropout"},
      {set("/model/unk_token", "<unk>"), CUA_UNSUPPORTED, "model.unk_token"},
      {set("/model/continuing_subword_prefix", "##"), CUA_UNSUPPORTED, "continuing_subword_prefix"},
      {set("/model/end_of_word_suffix", "</w>"), CUA_UNSUPPORTED, "end_of_word_suffix"},
      {set("/model/byte_fallback", true), CUA_UNSUPPORTED, "byte_fallback"},
      {set("/model/ignore_merges", true), CUA_UNSUPPORTED, "ignore_merges"},
      {set("/added_tokens/0/single_word", true), CUA_UNSUPPORTED,
       "added_tokens[0] (<x>).single_word"},
      {set("/added_tokens/1/lstrip", true), CUA_UNSUPPORTED, "added_tokens[1] (<x>y).lstrip"},
      {set("/added_tokens/0/rstrip", true), CUA_UNSUPPORTED, "rstrip"},
      {set("/added_tokens/0/normalized", true), CUA_UNSUPPORTED, "normalized is true"},
      {remove("/added_tokens/0", "normalized"), CUA_UNSUPPORTED, "normalized is missing"},
  };
  for (const Refusal &refusal : refusals) {
    json::object document = small_tokenizer();
    refusal.change(document);
    check_refused(json::serialize(document), refusal.code, refusal.named);
  }
}

TEST_CASE("each damage is named") {
  const auto merges = [](json::array list) { return set("/model/merges", std::move(list)); };
  const std::vector<Refusal> refusals = {
      {set("/model/vocab", json::array{}), CUA_BAD_MODEL, "model.vocab is not an object"},
      {remove("/model", "vocab"), CUA_BAD_MODEL, "model.vocab is missing"},
      {set("/model/vocab/a", 257), CUA_BAD_MODEL, "id 257 to two tokens"},
      {set("/model/vocab/a", -1), CUA_BAD_MODEL, "is -1, not an id"},
      {set("/model/vocab/a", 1.5), CUA_BAD_MODEL, "not an id"},
      {set("/model/vocab/a", "1"), CUA_BAD_MODEL, "not an id"},
      {set("/model/vocab/a", nullptr), CUA_BAD_MODEL, "not an id"},
      {set("/model/vocab/a", 4294967296), CUA_BAD_MODEL, "not an id"},
      {set("/model/vocab/a", UINT64_MAX), CUA_BAD_MODEL, "not an id"},
      {remove("/model/vocab", "z"), CUA_BAD_MODEL, "no token for the byte 122"},
      {remove("/model", "merges"), CUA_BAD_MODEL, "model.merges is missing"},
      {merges({json::array{"a", "b"}, "b c"}), CUA_BAD_MODEL, "model.merges[1] is not an array"},
      {merges({"a b", json::array{"b", "c"}}), CUA_BAD_MODEL, "model.merges[1] is not two tokens"},
      {merges({json::array{"a"}}), CUA_BAD_MODEL, "model.merges[0]"},
      {merges({json::array{"a", "b", "c"}}), CUA_BAD_MODEL, "model.merges[0]"},
      {merges({json::array{"a", 1}}), CUA_BAD_MODEL, "model.merges[0]"},
      {merges({1}), CUA_BAD_MODEL, "model.merges[0]"},
      {merges({"ab"}), CUA_BAD_MODEL, "model.merges[0]"},
      {merges({"a b c"}), CUA_BAD_MODEL, "model.merges[0]"},
      {merges({json::array{"a", "xyz"}}), CUA_BAD_MODEL, "model.vocab lacks \"xyz\""},
      {merges({json::array{"xyz", "a"}}), CUA_BAD_MODEL, "model.vocab lacks \"xyz\""},
      {merges({json::array{"x", "y"}}), CUA_BAD_MODEL, "model.vocab lacks \"xy\""},
      {set("/added_tokens", 1), CUA_BAD_MODEL, "added_tokens is not an array"},
      {set("/added_tokens/0", "x"), CUA_BAD_MODEL, "added_tokens[0] is not an object"},
      {set("/added_tokens/0/content", ""), CUA_BAD_MODEL, "added_tokens[0].content"},
      {set("/added_tokens/0/content", 1), CUA_BAD_MODEL, "added_tokens[0].content"},
      {remove("/added_tokens/0", "id"), CUA_BAD_MODEL, "added_tokens[0].id is missing"},
      {set("/added_tokens/0/id", 1 << 24), CUA_BAD_MODEL, "added_tokens[0].id"},
      {set("/added_tokens/1/id", 300), CUA_BAD_MODEL, "comes twice"},
      {set("/added_tokens/1/content", "<x>"), CUA_BAD_MODEL, "comes twice"},
      {set("/added_tokens/0/content", "ab"), CUA_BAD_MODEL, "model.vocab gives it 257"},
      {set("/pre_tokenizer/pretokenizers", 3), CUA_BAD_MODEL, "pretokenizers is not an array"},
  };
  for (const Refusal &refusal : refusals) {
    json::object document = small_tokenizer();
    refusal.change(document);
    check_refused(json::serialize(document), refusal.code, refusal.named);
  }
}

TEST_CASE("what is not a JSON object is refused") {
  const std::string good = json::serialize(small_tokenizer());
  for (const std::string &contents :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), good + "x",
        good.substr(0, good.size() - 1), std::string(100000, '['),
        std::string("{\"model\": \"\xFF\"}")}) {
    check_refused(contents, CUA_BAD_MODEL, "is not");
  }
  CHECK_NOTHROW(read_tokenizer_file(TemporaryFile(" \n" + good + "\r\n\t ").path()));
}

TEST_CASE("a file that cannot be read is named") {
  for (const std::filesystem::path &path : {std::filesystem::path("/nonexistent/tokenizer.json"),
                                            std::filesystem::temp_directory_path()}) {
    try {
      Tokenizer tokenizer(path);
      FAIL("opened " << path);
    } catch (const Error &error) {
      CHECK(error.code() == CUA_BAD_MODEL);
      CHECK(std::string_view(error.what()).starts_with(path.string()));
    }
  }
}

TEST_CASE("a Split regex that is not understood is refused with the file's name") {
  json::object document = small_tokenizer();
  set("/pre_tokenizer/pretokenizers/0/pattern/Regex", R"(\w+)")(document);
  const TemporaryFile file(json::serialize(document));
  try {
    Tokenizer tokenizer(file.path());
    FAIL("taken");
  } catch (const Error &error) {
    CHECK(error.code() == CUA_UNSUPPORTED);
    CHECK(std::string_view(error.what()).starts_with(file.path().string()));
    CHECK(std::string_view(error.what()).find("Split regex") != std::string_view::npos);
  }
}
