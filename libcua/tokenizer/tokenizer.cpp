// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <string>
#include <utility>

#include "error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"

namespace cua::tokenizer {

struct Tokenizer::Impl {
  Impl(const std::string &name, TokenizerFile file)
      : added_tokens(std::move(file.added_tokens)),
        pre_tokenizer(file.split_pattern, name + ": the Split regex"),
        bpe(file.byte_ids, file.merges),
        vocabulary(file.vocabulary) {
    std::string storage;
    nfc("", storage);  // makes its tables now rather than in the first call
  }

  // Memory of one call.
  struct Call {
    std::string normalized;
    Bpe::Workspace workspace;
    std::vector<uint32_t> ids;
  };

  // Text without added tokens.
  void encode_plain(std::string_view text, Call &call) {
    PreTokenizer::Cutter cutter(pre_tokenizer, nfc(text, call.normalized));
    std::string_view piece;
    while (cutter.next(piece)) {
      if (cache.find(piece, call.ids)) continue;
      const size_t before = call.ids.size();
      bpe.encode(piece, call.workspace, call.ids);
      cache.store(piece, call.ids.data() + before, call.ids.size() - before);
    }
  }

  AddedTokens added_tokens;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  PieceCache cache;
  uint32_t vocabulary;
};

namespace {

constexpr size_t kMaxText = size_t{1} << 30;  // positions are 32-bit, and NFC may triple a text

void check_utf8(std::string_view text) {
  const size_t offset = first_malformed_byte(text);
  if (offset == std::string_view::npos) return;
  constexpr char digits[] = "0123456789abcdef";
  const auto byte = static_cast<uint8_t>(text[offset]);
  throw Error(CUA_INVALID_ARGUMENT, std::string("text is not UTF-8: byte 0x") + digits[byte >> 4] +
                                        digits[byte & 15] + " at offset " + std::to_string(offset) +
                                        " begins no character");
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path &tokenizer_json)
    : impl_(std::make_unique<Impl>(tokenizer_json.string(), read_tokenizer_file(tokenizer_json))) {}

Tokenizer::~Tokenizer() = default;

std::vector<uint32_t> Tokenizer::encode(std::string_view text) const {
  if (text.size() > kMaxText) {
    throw Error(CUA_INVALID_ARGUMENT, "text has more than " + std::to_string(kMaxText) + " bytes");
  }
  check_utf8(text);
  Impl::Call call;
  for (size_t done = 0; done < text.size();) {
    size_t end = done;
    const AddedToken *token = impl_->added_tokens.find(text, end);
    if (done < end) impl_->encode_plain(text.substr(done, end - done), call);
    done = end;
    if (token) {
      call.ids.push_back(token->id);
      done += token->content.size();
    }
  }
  return std::move(call.ids);
}

uint32_t Tokenizer::vocabulary() const { return impl_->vocabulary; }

std::array<uint32_t, 26> Tokenizer::letters() const {
  std::array<uint32_t, 26> ids;
  for (uint8_t i = 0; i < 26; ++i) ids[i] = impl_->bpe.byte_id(static_cast<uint8_t>('A' + i));
  return ids;
}

}  // namespace cua::tokenizer
