// SPDX-License-Identifier: Apache-2.0
#include "api/struct_size.h"

#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"

using cua::Error;
using cua::api::check_size;
using cua::api::kLargestStruct;
using cua::api::read_input;
using cua::api::write_output;

namespace {

// A struct of a library of some minor version.
struct Input {
  uint32_t struct_size;
  uint32_t a;
  uint64_t b;
  uint64_t c;  // newer than the smallest
};
constexpr uint32_t kSmallest = 16;

template <class Body>
std::string refusal(Body &&body) {
  try {
    body();
  } catch (const Error &error) {
    CHECK(error.code() == CUA_INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != text.npos;
}

}  // namespace

TEST_CASE("sizes from the smallest to 65,536 pass") {
  for (const uint32_t size : {16u, 17u, 24u, 65535u, 65536u}) {
    CHECK(refusal([&] { check_size(size, 16, "x"); }).empty());
  }
  for (const uint32_t size : {0u, 1u, 15u, 65537u, 0x80000000u, 0xffffffffu}) {
    const std::string message = refusal([&] { check_size(size, 16, "prompts[3]"); });
    CHECK(contains(message, "prompts[3].struct_size is " + std::to_string(size) + ";"));
  }
}

TEST_CASE("an input struct: what is missing is zero, what is cut is read as far as it goes") {
  Input whole{0, 0x01020304, 0x1112131415161718, 0x2122232425262728};
  for (uint32_t size = kSmallest; size <= sizeof(Input); ++size) {
    whole.struct_size = size;
    std::vector<unsigned char> bytes(size);  // a read beyond it is the sanitizer's to find
    std::memcpy(bytes.data(), &whole, size);
    const auto got = read_input<Input>(bytes.data(), size, kSmallest, "x");
    Input expected{};
    std::memcpy(&expected, &whole, size);
    CHECK(std::memcmp(&got, &expected, sizeof got) == 0);
  }
}

TEST_CASE("an input struct: every unknown byte must be zero") {
  for (const uint32_t size : {25u, 32u, 100u, kLargestStruct}) {
    std::vector<unsigned char> bytes(size);
    std::memcpy(bytes.data(), &size, sizeof size);
    CHECK(refusal([&] { read_input<Input>(bytes.data(), size, kSmallest, "x"); }).empty());
    for (uint32_t i = sizeof(Input); i < size; i += (i < 200 ? 1 : 4999)) {
      for (const unsigned char value : {1, 0x80, 0xff}) {
        bytes[i] = value;
        const std::string message =
            refusal([&] { read_input<Input>(bytes.data(), size, kSmallest, "options"); });
        CHECK(contains(message, "options sets a field at byte " + std::to_string(i) + " "));
      }
      bytes[i] = 0;
    }
    bytes[size - 1] = 1;
    CHECK_FALSE(refusal([&] { read_input<Input>(bytes.data(), size, kSmallest, "x"); }).empty());
  }
}

TEST_CASE("an output struct: written as far as it goes, and no further") {
  for (const uint32_t size : {16u, 17u, 20u, 24u, 25u, 100u}) {
    for (size_t shift = 0; shift < 8; ++shift) {  // elements of an array with an odd stride
      std::vector<unsigned char> bytes(shift + size, 0xa5);
      write_output(bytes.data() + shift, size, Input{7, 1, 2, 3});
      Input expected{size, 1, 2, 3};
      const size_t written = std::min<size_t>(size, sizeof expected);
      CHECK(std::memcmp(bytes.data() + shift, &expected, written) == 0);
      CHECK(std::all_of(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(shift),
                        [](unsigned char b) { return b == 0xa5; }));
      CHECK(std::all_of(bytes.begin() + static_cast<ptrdiff_t>(shift + written), bytes.end(),
                        [](unsigned char b) { return b == 0xa5; }));
    }
  }
}
