// SPDX-License-Identifier: Apache-2.0
// Any bytes as the text of a prompt, on the real tokenizer.json. Checked against the same stages
// without the cache, and by decoding the ids.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"

using namespace cua::tokenizer;

namespace {

void require(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "tokenizer_fuzz: %s\n", what);
  std::abort();
}

const std::string kPath = CUA_TEST_DATA "/tokenizer/tokenizer.json";

struct Stages {
  TokenizerFile file = read_tokenizer_file(kPath);
  AddedTokens added_tokens{file.added_tokens};
  PreTokenizer pre_tokenizer{file.split_pattern, "the Split regex"};
  Bpe bpe{file.byte_ids, file.merges};
  std::vector<std::string> texts;  // by id; empty: no merge makes it

  Stages() : texts(file.vocabulary) {
    for (size_t byte = 0; byte < 256; ++byte) {
      texts[file.byte_ids[byte]] = std::string(1, static_cast<char>(byte));
    }
    // A part may come later in the list than what is made of it.
    for (bool changed = true; changed;) {
      changed = false;
      for (const Merge &merge : file.merges) {
        if (!texts[merge.result].empty() || texts[merge.left].empty() ||
            texts[merge.right].empty()) {
          continue;
        }
        texts[merge.result] = texts[merge.left] + texts[merge.right];
        changed = true;
      }
    }
    for (const AddedToken &token : file.added_tokens) texts[token.id] = token.content;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const Tokenizer tokenizer(kPath);
  static const Stages stages;
  const std::string text(reinterpret_cast<const char *>(data), size);

  std::vector<uint32_t> ids;
  try {
    ids = tokenizer.encode(text);
  } catch (const cua::Error &error) {
    require(error.code() == CUA_INVALID_ARGUMENT, "another error than INVALID_ARGUMENT");
    const size_t offset = first_malformed_byte(text);
    require(offset != std::string::npos, "well-formed text refused");
    const std::string place = "offset " + std::to_string(offset) + ' ';
    require(std::string(error.what()).find(place) != std::string::npos, "wrong offset");
    require(first_malformed_byte(text.substr(0, offset)) == std::string::npos, "fault is earlier");
    return 0;
  }
  require(first_malformed_byte(text) == std::string::npos, "malformed text taken");
  require(tokenizer.encode(text) == ids, "a second call gives other ids");

  std::vector<uint32_t> uncached;
  std::string normalized;
  Bpe::Workspace workspace;
  for (size_t done = 0; done < text.size();) {
    size_t end = done;
    const AddedToken *token = stages.added_tokens.find(text, end);
    std::string storage;
    std::string again;
    const std::string_view plain = nfc(std::string_view(text).substr(done, end - done), storage);
    require(nfc(plain, again) == plain, "NFC of NFC differs");
    normalized += plain;
    PreTokenizer::Cutter cutter(stages.pre_tokenizer, plain);
    std::string_view piece;
    while (cutter.next(piece)) {
      require(!piece.empty(), "empty piece");
      stages.bpe.encode(piece, workspace, uncached);
    }
    done = end;
    if (token) {
      uncached.push_back(token->id);
      normalized += token->content;
      done += token->content.size();
    }
  }
  require(uncached == ids, "the cache changes ids");

  std::string decoded;
  for (const uint32_t id : ids) {
    require(id < tokenizer.vocabulary(), "id beyond the vocabulary");
    require(!stages.texts[id].empty(), "id that no merge makes");
    decoded += stages.texts[id];
  }
  require(decoded == normalized, "the ids do not spell the text");
  return 0;
}
