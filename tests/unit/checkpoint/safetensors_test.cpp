// SPDX-License-Identifier: Apache-2.0
// Damaged safetensors files: each is refused before a tensor is touched, by file and tensor.
#include "checkpoint/safetensors.h"

#include <cstring>
#include <functional>

#include "folder.h"

using namespace cua;
using test::FileTensor;

namespace {

std::string file_of(const std::string &header, const std::string &data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

// The message of the error that bytes give; empty where they are good.
std::string fault(const std::string &bytes) {
  try {
    checkpoint::parse_safetensors(std::as_bytes(std::span(bytes)), "a file");
    return "";
  } catch (const Error &error) {
    CHECK(error.code() == CUA_BAD_MODEL);
    CHECK(std::string(error.what()).find("a file") == 0);
    return error.what();
  }
}

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

std::string entry(const std::string &name, const std::string &dtype, const std::string &shape,
                  uint64_t begin, uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

TEST_CASE("good files") {
  CHECK(fault(file_of("{}", "")).empty());
  CHECK(fault(file_of("{\"__metadata__\":{\"format\":\"pt\"}}   ", "")).empty());
  CHECK(
      fault(file_of("{" + entry("a", "BF16", "[2,3]", 0, 12) + "}", std::string(12, 'x'))).empty());
  CHECK(fault(file_of(
                  "{" + entry("b", "F32", "[]", 8, 12) + "," + entry("a", "I64", "[1]", 0, 8) + "}",
                  std::string(12, 'x')))
            .empty());
  CHECK(fault(file_of("{" + entry("empty", "F32", "[0,5]", 0, 0) + "}", "")).empty());
  CHECK(fault(file_of("{" + entry("half bytes", "F4", "[4]", 0, 2) + "}", "xx")).empty());
  const std::string bytes = file_of("{" + entry("a", "U8", "[3]", 0, 3) + "}", "abc");
  const auto header = checkpoint::parse_safetensors(std::as_bytes(std::span(bytes)), "f");
  CHECK(header.at("a").end - header.at("a").begin == 3);
  CHECK(header.at("a").shape == std::vector<uint64_t>{3});
}

TEST_CASE("a header of megabytes is read") {
  std::string header = "{\"__metadata__\":{";
  for (int i = 0; i < 60000; ++i) {
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\"" + std::string(40, 'm') + "\"";
  }
  header += "}," + entry("a", "U8", "[1]", 0, 1) + "}";
  REQUIRE(header.size() > 3'000'000);
  CHECK(fault(file_of(header, "x")).empty());
}

TEST_CASE("every dtype of the format is known") {
  const std::pair<const char *, uint64_t> dtypes[] = {
      // bytes of eight elements
      {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"BOOL", 8}, {"U8", 8},
      {"I8", 8},      {"F8_E5M2", 8},     {"F8_E4M3", 8},     {"I16", 16}, {"U16", 16},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F16", 16}, {"BF16", 16},
      {"I32", 32},    {"U32", 32},        {"F32", 32},        {"I64", 64}, {"U64", 64},
      {"F64", 64},    {"C64", 64}};
  for (const auto &[dtype, bytes] : dtypes) {
    CAPTURE(dtype);
    const std::string text = "{" + entry("a", dtype, "[8]", 0, bytes) + "}";
    CHECK(fault(file_of(text, std::string(bytes, 'x'))).empty());
    CHECK(!fault(file_of(text, std::string(bytes - 1, 'x'))).empty());
  }
}

TEST_CASE("names from a file stay short and on one line in messages") {
  const auto message = [](const std::string &name, const std::string &dtype) {
    return fault(file_of("{" + entry(name, dtype, "[2]", 0, 1) + "}", "x"));
  };
  CHECK(has(message("a\\u0000b\\nc\\u007f", "U8"), "tensor a\\x00b\\x0ac\\x7f: its shape"));
  CHECK(has(message("a", "\\u0000"), "dtype \"\\x00\" is unknown"));
  const std::pair<const char *, const char *> characters[] = {
      {"n", "n"},
      {"\xc3\xa9", "\xc3\xa9"},
      {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
      {"\\u0001", "\\x01"}};
  for (const auto &[character, shown] : characters) {
    std::string name = "a";
    for (int i = 0; i < 50'000; ++i) name += character;
    for (const char *dtype : {"U8", "F8"}) {
      const std::string text = message(name, dtype);
      CAPTURE(text);
      CHECK(text.size() < 400);
      CHECK(has(text, std::string(dtype) == "U8" ? "needs 2 bytes" : "unknown"));
      CHECK(has(text, std::string(shown) + "... ("));  // a character is never cut
    }
  }
}

TEST_CASE("faults of the length") {
  CHECK(has(fault(""), "0 bytes"));
  CHECK(has(fault("1234567"), "7 bytes"));
  CHECK(has(fault(std::string(8, '\0')), "empty header"));
  std::string bytes = file_of("{}", "");
  for (const uint64_t length : {uint64_t{3}, uint64_t{1000}, uint64_t{100'000'000}}) {
    std::memcpy(bytes.data(), &length, 8);
    CHECK(has(fault(bytes), "cut"));
  }
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 62, ~uint64_t{0}}) {
    std::memcpy(bytes.data(), &length, 8);
    CHECK(has(fault(bytes), "limit"));
  }
}

TEST_CASE("faults of the header's JSON") {
  for (const char *header :
       {"",
        " ",
        "{",
        "}",
        "[]",
        "null",
        "1",
        "\"x\"",
        "{}{}",
        "{}x",
        " {}",
        "\n{}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1}",
        "{\"a\":null}",
        "{\"a\":\"x\"}",
        "{\"a\":[]}",
        "{\"a\":{}}",
        "{'a':{}}",
        "{\"a\":{\"dtype\":\"U8\"}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,2]}}",
        "{\"a\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":{\"x\":1},\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"shape\":[],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"other\":true,\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        "{\"__metadata__\":{\"a\":{}}}",
        "{\"__metadata__\":[]}",
        "{\"__metadata__\":3}",
        "{\"__metadata__\":{},\"__metadata__\":{}}",
        "\xff"}) {
    CAPTURE(header);
    const std::string text = fault(file_of(header, "x"));
    CAPTURE(text);
    CHECK(!text.empty());
    CHECK(!has(text, "after the last tensor"));  // the fault is seen, not the "x"
  }
  CHECK(has(fault(file_of("{\"the one\":{\"dtype\":\"U8\",\"shape\":[]}}", "")), "the one"));
  CHECK(has(
      fault(file_of("{" + entry("a", "U8", "[1]", 0, 1) + "," + entry("a", "U8", "[1]", 1, 2) + "}",
                    "xy")),
      "twice"));
  const auto message = [](const std::string &shape, const std::string &offsets) {
    return fault(file_of(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}}",
        "x"));
  };
  CHECK(message("1", "0,1").empty());
  CHECK(has(message("-1", "0,1"), "negative"));
  CHECK(has(message("1", "-1,1"), "negative"));
  CHECK(has(message("1", "0,1.5"), "whole"));
  std::string ones = "1";
  for (int i = 1; i < 16; ++i) ones += ",1";
  CHECK(message(ones, "0,1").empty());
  CHECK(has(message(ones + ",1", "0,1"), "dimensions"));
  std::string deep(200'000, '[');
  CHECK(!fault(file_of(deep, "")).empty());
  deep.clear();
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  CHECK(!fault(file_of(deep, "")).empty());
}

TEST_CASE("faults of the byte ranges") {
  const auto one = [](const std::string &text, const std::string &data) {
    return fault(file_of("{" + text + "}", data));
  };
  CHECK(has(one(entry("a", "F8", "[1]", 0, 1), "x"), "dtype \"F8\" is unknown"));
  CHECK(has(one(entry("a", "bf16", "[1]", 0, 2), "xx"), "unknown"));
  CHECK(has(one(entry("a", "F32", "[2]", 0, 4), "xxxx"), "tensor a"));
  CHECK(has(one(entry("a", "F32", "[2]", 0, 4), "xxxx"), "needs 8 bytes"));
  CHECK(has(one(entry("a", "U8", "[4]", 0, 4), "xxx"), "outside"));
  CHECK(has(one(entry("a", "U8", "[4]", 5, 1), "xxxxxx"), "outside"));
  CHECK(has(one(entry("a", "U8", "[4]", ~uint64_t{0} - 3, ~uint64_t{0}), "xxxx"), "outside"));
  CHECK(has(one(entry("a", "F64", "[4294967296,4294967296]", 0, 0), ""), "overflows"));
  CHECK(has(one(entry("a", "U8", "[2305843009213693952,8]", 0, 0), ""), "overflows"));
  CHECK(has(one(entry("a", "F4", "[3]", 0, 1), "x"), "tensor a: its shape does not fill"));
  CHECK(has(one(entry("a", "U8", "[3]", 0, 3) + "," + entry("b", "U8", "[3]", 2, 5), "xxxxx"),
            "overlap"));
  CHECK(has(one(entry("a", "U8", "[3]", 0, 3) + "," + entry("b", "U8", "[3]", 0, 3), "xxx"),
            "overlap"));
  CHECK(has(one(entry("a", "U8", "[3]", 0, 3) + "," + entry("b", "U8", "[1]", 4, 5), "xxxxx"),
            "hole"));
  CHECK(has(one(entry("a", "U8", "[3]", 1, 4), "xxxx"), "hole"));
  CHECK(has(one(entry("a", "U8", "[3]", 0, 3), "xxxx"), "after the last tensor"));
  CHECK(has(one("", "x"), "after the last tensor"));
}

TEST_CASE("every cut and every flipped byte of a small file is refused or harmless") {
  const std::string good = file_of(
      "{" + entry("a", "BF16", "[2,3]", 0, 12) + "," + entry("b", "F32", "[1]", 12, 16) + "}",
      std::string(16, 'x'));
  for (size_t cut = 0; cut < good.size(); ++cut) {
    CAPTURE(cut);
    CHECK(!fault(good.substr(0, cut)).empty());
  }
  for (size_t at = 0; at < good.size() - 16; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1 << bit);
      fault(bad);  // must not crash; a changed name is another good file
    }
  }
}
