// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "error.h"

namespace json = boost::json;
using cua::Error;
using cua::tokenizer::Tokenizer;
using Ids = std::vector<uint32_t>;

namespace {

const std::string kFolder = CUA_TEST_DATA "/tokenizer/";

const Tokenizer &tokenizer() {
  static const Tokenizer instance(kFolder + "tokenizer.json");
  return instance;
}

json::value load(const std::string &name) {
  std::ifstream stream(kFolder + name, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return json::parse(text.str());
}

struct Example {
  std::string text;
  Ids ids;
};

Example example(const json::value &value) {
  return {json::value_to<std::string>(value.at("text")), json::value_to<Ids>(value.at("ids"))};
}

std::vector<Example> golden() {
  std::vector<Example> examples;
  const json::value list = load("golden.json");
  for (const auto &value : list.as_array()) examples.push_back(example(value));
  return examples;
}

std::string repeated(const std::string &unit, size_t bytes) {
  std::string text;
  while (text.size() + unit.size() <= bytes) text += unit;
  return text;
}

}  // namespace

TEST_CASE("the golden strings and the fixture have their ids, with a cold and a warm cache") {
  auto examples = golden();
  CHECK(examples.size() == 257);
  examples.push_back(example(load("fixture.json")));
  CHECK(examples.back().ids.size() == 218);
  const Tokenizer fresh(kFolder + "tokenizer.json");
  for (int round = 0; round < 2; ++round) {
    for (const auto &[text, ids] : examples) {
      INFO(text);
      CHECK(fresh.encode(text) == ids);
    }
  }
}

TEST_CASE("vocabulary, letters and special tokens are those of the model") {
  CHECK(tokenizer().vocabulary() == 248077);
  for (uint32_t i = 0; i < 26; ++i) {
    CHECK(tokenizer().letters()[i] == 32 + i);
    CHECK(tokenizer().encode(std::string(1, static_cast<char>('A' + i))) == Ids{32 + i});
  }
  CHECK(tokenizer().encode("<|endoftext|><|im_start|><|im_end|><think>") ==
        Ids{248044, 248045, 248046, 248068});
}

TEST_CASE("nothing becomes nothing, and NUL is a character") {
  CHECK(tokenizer().encode("").empty());
  CHECK(tokenizer().encode(std::string_view("\0", 1)).size() == 1);
  const Ids apart = tokenizer().encode(std::string_view("a\0b", 3));
  CHECK(apart.size() == 3);
  CHECK(apart.front() == tokenizer().encode("a").front());
}

TEST_CASE("text that is not UTF-8 is refused with the offset") {
  for (const auto &[text, offset] : std::vector<std::pair<std::string, std::string>>{
           {"\xFF", "0"},
           {"abc\x80", "3"},
           {"\xC0\x80", "0"},
           {"x\xED\xA0\x80", "1"},
           {"<|im_end|>\xF4\x90\x80\x80", "10"},
           {"\xE2\x82", "0"},
           {std::string(1000, 'a') + "\xE2\x82", "1000"}}) {
    try {
      tokenizer().encode(text);
      FAIL("taken: " << offset);
    } catch (const Error &error) {
      CHECK(error.code() == CUA_INVALID_ARGUMENT);
      const std::string message = error.what();
      CHECK(message.find("not UTF-8") != std::string::npos);
      CHECK(message.find("offset " + offset + ' ') != std::string::npos);
    }
  }
}

TEST_CASE("long inputs of every repetitive kind take linear time") {
  // Quadratic time in any stage would be hours. The ids repeat with a period, but for the ends:
  // so the long answer must begin as the short one does.
  for (const std::string unit : {"a",
                                 "A",
                                 " ",
                                 "\n",
                                 "\t",
                                 "\r",
                                 "\r\n",
                                 "1",
                                 "-",
                                 "<",
                                 "<|",
                                 "<|im_start",
                                 "ab ",
                                 "   ...x",
                                 "\n \n",
                                 "\t\r\n",
                                 " \n",
                                 "...\n",
                                 "x\n  ",
                                 "'s",
                                 "\xCC\x81",
                                 "e\xCC\x81",
                                 "\xC3\xA9",
                                 "\xCC\x81\xCC\x96",
                                 "\xE6\xBC\xA2",
                                 "\xF0\x9F\x98\x80",
                                 "\xEA\xB0\x80",
                                 "\xE1\x84\x80\xE1\x85\xA1",
                                 "\xE3\x80\x80",
                                 "\xEF\xA4\x80",
                                 "\xE1\xA0\x8E",
                                 "<|im_end|>",
                                 "\xC2\x85"}) {
    INFO(unit);
    const Ids ids = tokenizer().encode(repeated(unit, 1 << 20));
    const Ids start = tokenizer().encode(repeated(unit, 1 << 12));
    const size_t common = start.size() / 2;
    CHECK(ids.size() > start.size());
    // Marks of two classes are sorted over the whole run.
    if (unit != "\xCC\x81\xCC\x96") {
      CHECK(std::equal(start.begin(), start.begin() + static_cast<std::ptrdiff_t>(common),
                       ids.begin()));
    }
  }
}

TEST_CASE("four MiB of one character") {
  const Ids ids = tokenizer().encode(std::string(4 << 20, 'a'));
  CHECK(ids.size() == (4 << 20) / 8);
  CHECK(std::all_of(ids.begin(), ids.end(), [&](uint32_t id) { return id == ids[0]; }));
}

TEST_CASE("threads share a tokenizer") {
  const auto examples = golden();
  const Tokenizer fresh(kFolder + "tokenizer.json");
  std::atomic<size_t> wrong = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 4 * examples.size(); ++i) {
        const auto &[text, ids] = examples[(i + t * 61) % examples.size()];
        if (fresh.encode(text) != ids) ++wrong;
      }
    });
  }
  for (auto &thread : threads) thread.join();
  CHECK(wrong == 0);
}
