// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace cua::tokenizer {

// Text to token ids, as a tokenizer.json of the Qwen3.5 kind says: added tokens split out of the
// raw text, NFC, a Split regex, byte-level BPE. Thread safe.
class Tokenizer {
 public:
  // Throws Error BAD_MODEL for a file that is missing or damaged, UNSUPPORTED for a configuration
  // that is not implemented exactly; the message names the file and the field.
  explicit Tokenizer(const std::filesystem::path &tokenizer_json);
  ~Tokenizer();
  Tokenizer(const Tokenizer &) = delete;
  Tokenizer &operator=(const Tokenizer &) = delete;

  // Ids of a UTF-8 text of at most 1 GiB; nothing is added. Time is linear in the text. Throws
  // Error INVALID_ARGUMENT where it is longer, or not UTF-8 (with the offset of the first bad
  // byte).
  std::vector<uint32_t> encode(std::string_view text) const;

  uint32_t vocabulary() const;               // largest id + 1
  std::array<uint32_t, 26> letters() const;  // ids of A to Z, each a single token

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cua::tokenizer
