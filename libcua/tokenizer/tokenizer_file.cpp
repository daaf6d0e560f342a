// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_file.h"

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <string_view>
#include <system_error>

#include "error.h"
#include "tokenizer/byte_alphabet.h"

namespace cua::tokenizer {
namespace {

namespace json = boost::json;

constexpr uint32_t kMaxId = (1u << 24) - 1;

std::string_view view(const json::string &text) { return {text.data(), text.size()}; }

std::string kind_of(const json::value &value) {
  if (const auto *text = value.if_string(); text && text->size() <= 40) {
    return '"' + std::string(view(*text)) + '"';
  }
  std::string text = value.is_structured() ? "" : json::serialize(value);
  if (!text.empty() && text.size() <= 40) return text;
  return "a " + std::string(json::to_string(value.kind()));
}

// Reads the fields, and names the file and the field in every error.
class Reader {
 public:
  explicit Reader(const std::filesystem::path &path) : path_(path) {}

  TokenizerFile read() {
    const std::string text = contents();
    json::monotonic_resource memory;  // everything is freed at once
    json::error_code error;
    json::stream_parser parser(&memory);
    const size_t used = parser.write_some(text, error);
    if (!error) parser.finish(error);
    if (!error && text.find_first_not_of(" \t\r\n", used) != std::string::npos) {
      error = json::error::extra_data;
    }
    if (error) bad("is not JSON: " + error.message() + " at byte " + std::to_string(used));
    const json::value document = parser.release();
    if (!document.is_object()) bad("is not a JSON object");
    const json::object &top = document.get_object();

    require_null(top, "truncation");
    require_null(top, "padding");
    TokenizerFile file;
    read_normalizer(top);
    read_pre_tokenizer(top, file);
    read_post_processor(top);
    read_model(top, file);
    read_added_tokens(top, file);
    return file;
  }

 private:
  [[noreturn]] void fail(int32_t code, const std::string &what) const {
    throw Error(code, path_.string() + ": " + what);
  }
  [[noreturn]] void bad(const std::string &what) const { fail(CUA_BAD_MODEL, what); }
  [[noreturn]] void unsupported(const std::string &field, const std::string &found,
                                const std::string &taken) const {
    fail(CUA_UNSUPPORTED, field + " is " + found + "; this tokenizer takes " + taken);
  }

  std::string contents() const {
    std::error_code error;
    const auto size = std::filesystem::file_size(path_, error);
    if (error) bad("cannot be read: " + error.message());
    std::string text(size, '\0');
    std::ifstream stream(path_, std::ios::binary);
    if (!stream.read(text.data(), static_cast<std::streamsize>(size))) bad("cannot be read");
    return text;
  }

  const json::value &member(const json::object &object, std::string_view key,
                            const std::string &field) const {
    const auto *value = object.if_contains(key);
    if (!value) bad(field + " is missing");
    return *value;
  }
  const json::object &object_member(const json::object &object, std::string_view key,
                                    const std::string &field) const {
    const json::value &value = member(object, key, field);
    if (!value.is_object()) bad(field + " is not an object");
    return value.get_object();
  }
  const json::array &array_member(const json::object &object, std::string_view key,
                                  const std::string &field) const {
    const json::value &value = member(object, key, field);
    if (!value.is_array()) bad(field + " is not an array");
    return value.get_array();
  }
  uint32_t id_of(const json::value &value, const std::string &field) const {
    const auto *number = value.if_int64();
    if (!number || *number < 0 || *number > kMaxId) {
      bad(field + " is " + kind_of(value) + ", not an id from 0 to " + std::to_string(kMaxId));
    }
    return static_cast<uint32_t>(*number);
  }

  void require_null(const json::object &object, std::string_view key) const {
    const auto *value = object.if_contains(key);
    if (value && !value->is_null()) unsupported(std::string(key), kind_of(*value), "null");
  }
  void require_string(const json::object &object, std::string_view key, std::string_view wanted,
                      const std::string &field) const {
    const json::value &value = member(object, key, field);
    if (!value.is_string() || view(value.get_string()) != wanted) {
      unsupported(field, kind_of(value), '"' + std::string(wanted) + '"');
    }
  }
  // An option that is off where it is missing, null, false or the empty string.
  void require_off(const json::object &object, std::string_view key, const std::string &of) const {
    const auto *value = object.if_contains(key);
    if (!value || value->is_null()) return;
    if (value->is_bool() && !value->get_bool()) return;
    if (value->is_string() && value->get_string().empty()) return;
    unsupported(of + '.' + std::string(key), kind_of(*value), "none");
  }

  void read_normalizer(const json::object &top) const {
    require_string(object_member(top, "normalizer", "normalizer"), "type", "NFC",
                   "normalizer.type");
  }

  void require_byte_level(const json::object &object, const std::string &field) const {
    require_string(object, "type", "ByteLevel", field + ".type");
    for (const std::string_view key : {"add_prefix_space", "use_regex"}) {
      const std::string name = field + '.' + std::string(key);
      const json::value &value = member(object, key, name);
      if (!value.is_bool() || value.get_bool()) unsupported(name, kind_of(value), "false");
    }
  }

  void read_pre_tokenizer(const json::object &top, TokenizerFile &file) const {
    const std::string field = "pre_tokenizer";
    const auto &sequence = object_member(top, field, field);
    require_string(sequence, "type", "Sequence", field + ".type");
    const auto &steps = array_member(sequence, "pretokenizers", field + ".pretokenizers");
    if (steps.size() != 2 || !steps[0].is_object() || !steps[1].is_object()) {
      unsupported(field, "another sequence", "Split, then ByteLevel");
    }
    const auto &split = steps[0].get_object();
    const std::string split_field = field + ".pretokenizers[0]";
    require_string(split, "type", "Split", split_field + ".type");
    require_string(split, "behavior", "Isolated", split_field + ".behavior");
    require_off(split, "invert", split_field);
    const auto &pattern = object_member(split, "pattern", split_field + ".pattern");
    const auto *regex = pattern.if_contains("Regex");
    if (!regex || !regex->is_string()) {
      unsupported(split_field + ".pattern", "of another kind", "a Regex");
    }
    file.split_pattern = view(regex->get_string());
    require_byte_level(steps[1].get_object(), field + ".pretokenizers[1]");
  }

  // A ByteLevel post-processor changes offsets only. Others would add tokens.
  void read_post_processor(const json::object &top) const {
    const auto *value = top.if_contains("post_processor");
    if (!value || value->is_null()) return;
    if (!value->is_object()) bad("post_processor is not an object");
    require_string(value->get_object(), "type", "ByteLevel", "post_processor.type");
  }

  void read_model(const json::object &top, TokenizerFile &file) const {
    const auto &model = object_member(top, "model", "model");
    require_string(model, "type", "BPE", "model.type");
    for (const std::string_view key : {"dropout", "unk_token", "continuing_subword_prefix",
                                       "end_of_word_suffix", "byte_fallback", "ignore_merges"}) {
      require_off(model, key, "model");  // fuse_unk means nothing without unk_token
    }
    const auto &vocabulary = object_member(model, "vocab", "model.vocab");
    read_vocabulary(vocabulary, file);
    read_merges(array_member(model, "merges", "model.merges"), vocabulary, file);
  }

  void read_vocabulary(const json::object &vocabulary, TokenizerFile &file) const {
    file.vocabulary = 0;
    std::vector<bool> taken;
    for (const auto &entry : vocabulary) {
      const std::string field = "model.vocab";
      const uint32_t id = id_of(entry.value(), field);
      file.vocabulary = std::max(file.vocabulary, id + 1);
      if (taken.size() <= id) taken.resize(std::max<size_t>(id + 1, 2 * taken.size()));
      if (taken[id]) bad(field + " gives the id " + std::to_string(id) + " to two tokens");
      taken[id] = true;
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto *id = vocabulary.if_contains(byte_alphabet()[byte]);
      if (!id) bad("model.vocab has no token for the byte " + std::to_string(byte));
      file.byte_ids[byte] = static_cast<uint32_t>(id->get_int64());
    }
  }

  // Merges are ["a", "b"] each or, in older files, "a b".
  void read_merges(const json::array &list, const json::object &vocabulary,
                   TokenizerFile &file) const {
    file.merges.reserve(list.size());
    const bool as_text = !list.empty() && list[0].is_string();
    std::string result;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto malformed = [&]() {
        bad("model.merges[" + std::to_string(i) + "] is not " +
            (as_text ? "two tokens with a blank between" : "an array of two tokens"));
      };
      std::string_view left;
      std::string_view right;
      if (as_text) {
        if (!list[i].is_string()) malformed();
        const std::string_view text = view(list[i].get_string());
        if (text.starts_with("#version")) continue;
        const size_t blank = text.find(' ');
        if (blank == std::string_view::npos) malformed();
        left = text.substr(0, blank);
        right = text.substr(blank + 1);
        if (right.find(' ') != std::string_view::npos) malformed();
      } else {
        if (!list[i].is_array() || list[i].get_array().size() != 2) malformed();
        const auto *first = list[i].get_array()[0].if_string();
        const auto *second = list[i].get_array()[1].if_string();
        if (!first || !second) malformed();
        left = view(*first);
        right = view(*second);
      }
      const auto id = [&](std::string_view token) {
        const auto *found = vocabulary.if_contains(token);
        if (!found) {
          std::string what = "model.merges[" + std::to_string(i) + "]: model.vocab lacks \"";
          bad(what.append(token).append("\""));
        }
        return static_cast<uint32_t>(found->get_int64());
      };
      result.assign(left).append(right);
      file.merges.push_back({id(left), id(right), id(result)});
    }
  }

  void read_added_tokens(const json::object &top, TokenizerFile &file) const {
    const auto *list = top.if_contains("added_tokens");
    if (!list) return;
    if (!list->is_array()) bad("added_tokens is not an array");
    const auto &vocabulary = top.at("model").at("vocab").get_object();
    for (size_t i = 0; i < list->get_array().size(); ++i) {
      const std::string field = "added_tokens[" + std::to_string(i) + ']';
      if (!list->get_array()[i].is_object()) bad(field + " is not an object");
      const auto &token = list->get_array()[i].get_object();
      const auto &content = member(token, "content", field + ".content");
      if (!content.is_string() || content.get_string().empty()) {
        bad(field + ".content is not a string with characters");
      }
      const std::string text(view(content.get_string()));
      const std::string named = field + " (" + text + ')';
      const uint32_t id = id_of(member(token, "id", field + ".id"), field + ".id");
      for (const std::string_view key : {"single_word", "lstrip", "rstrip"}) {
        require_off(token, key, named);
      }
      // Matched against the normalised text otherwise; where the flag is missing, it is set.
      const auto *normalized = token.if_contains("normalized");
      if (!normalized || !normalized->is_bool() || normalized->get_bool()) {
        unsupported(named + ".normalized", normalized ? kind_of(*normalized) : "missing", "false");
      }
      const auto *known = vocabulary.if_contains(text);
      if (known && static_cast<uint32_t>(known->get_int64()) != id) {
        bad(named + " has the id " + std::to_string(id) + ", but model.vocab gives it " +
            std::to_string(known->get_int64()));
      }
      for (const AddedToken &other : file.added_tokens) {
        if (other.id == id || other.content == text) bad(named + " comes twice");
      }
      file.added_tokens.push_back({text, id});
      file.vocabulary = std::max(file.vocabulary, id + 1);
    }
  }

  const std::filesystem::path &path_;
};

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path &path) { return Reader(path).read(); }

}  // namespace cua::tokenizer
