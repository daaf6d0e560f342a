// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace cua_server::decision {

// A JSON value as the request spelled it: members in order, integers with all their digits.
// Lives in a JsonDocument and is used in place: what it contains lies right after it.
class Json {
 public:
  enum class Type : uint8_t { kNull, kBoolean, kInteger, kReal, kString, kArray, kObject };

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  const char *type_name() const;  // "an object", "null", ...

  bool boolean() const { return is_true_; }
  double real() const { return real_; }
  // Of a string its characters; of an integer its digits: no leading zero, "0" for "-0".
  std::string_view text() const { return {text_, size_}; }

  // Items of an array, members of an object, bytes of text().
  size_t size() const { return size_; }
  // The first item, or the first member's key, whose next() is its value. Follow next() no further
  // than size() allows.
  const Json *first() const { return this + 1; }
  const Json *next() const {
    return this + 1 + (is(Type::kArray) || is(Type::kObject) ? inside_ : 0);
  }
  // The value of an object's member; nullptr where there is none or this is no object.
  const Json *find(std::string_view key) const;

 private:
  friend class JsonBuilder;

  Type type_ = Type::kNull;
  uint64_t size_ : 56 = 0;  // bytes of text, items or members
  union {
    bool is_true_;
    double real_;
    const char *text_;
    uint64_t inside_ = 0;  // values and keys, at any depth
  };
};
static_assert(sizeof(Json) == 16);

// A parsed text. The text must outlive it: strings without escapes are not copied.
class JsonDocument {
 public:
  const Json &root() const { return values_.front(); }

 private:
  friend class JsonBuilder;

  std::vector<Json> values_;  // in the order of the text
  std::vector<char> copied_;  // strings that were spelled with escapes
  std::vector<char> body_;    // the text, where it had to be changed before it was parsed
};

}  // namespace cua_server::decision
