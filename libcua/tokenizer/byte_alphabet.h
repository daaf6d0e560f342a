// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace cua::tokenizer {

// The printable character, as UTF-8, by which a byte-level vocabulary spells each byte: printable
// Latin-1 stands for itself, the other bytes, in order, for U+0100 onwards.
const std::array<std::string, 256> &byte_alphabet();

}  // namespace cua::tokenizer
