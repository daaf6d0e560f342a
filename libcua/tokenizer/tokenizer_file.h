// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/merge_table.h"

namespace cua::tokenizer {

// What encoding needs of a tokenizer.json.
struct TokenizerFile {
  std::array<uint32_t, 256> byte_ids;  // of the single-byte tokens
  std::vector<Merge> merges;           // lowest rank first
  std::string split_pattern;           // of the Split pre-tokenizer, as written
  std::vector<AddedToken> added_tokens;
  uint32_t vocabulary;  // largest id + 1, added tokens included
};

// Throws Error BAD_MODEL for a file that is missing or damaged, UNSUPPORTED for a configuration
// that this tokenizer does not implement exactly; both name the file and the field.
TokenizerFile read_tokenizer_file(const std::filesystem::path &path);

}  // namespace cua::tokenizer
