// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace cua::tokenizer {

// Unicode normalisation form C of a well-formed text, in linear time, with the tables of
// Unicode 9.0 as the `tokenizers` package has them: marks and compositions that came later are left
// where they stand. Returns the text itself where it is in that form, else a view of `storage`.
std::string_view nfc(std::string_view text, std::string &storage);

}  // namespace cua::tokenizer
