// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace cua::tokenizer {

// The Split regex of a tokenizer.json ("Isolated"): a text is cut into the matches and what lies
// between them. Compiled once, shared by all threads.
class PreTokenizer {
 public:
  // Throws Error BAD_MODEL for a regex that does not compile, UNSUPPORTED for one whose meaning
  // might differ from that in the `tokenizers` package, both with `name` in the message.
  PreTokenizer(std::string_view pattern, const std::string &name);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer &) = delete;
  PreTokenizer &operator=(const PreTokenizer &) = delete;

  // Cuts one well-formed text, piece by piece. One thread each.
  class Cutter {
   public:
    Cutter(const PreTokenizer &pre_tokenizer, std::string_view text);
    ~Cutter();
    Cutter(const Cutter &) = delete;
    Cutter &operator=(const Cutter &) = delete;

    bool next(std::string_view &piece);  // never an empty one; false: no more

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace cua::tokenizer
