// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace cua::tokenizer {

// Rewrites a Split regex, which the `tokenizers` package gives to Oniguruma, for PCRE2 in UTF and
// UCP mode. Takes only what both read alike, which covers the regexes of byte-level BPE models; \s
// becomes the 25 White_Space characters, since PCRE2's own takes U+180E as well.
// Throws Error UNSUPPORTED that names the construct and its offset.
std::string pcre2_pattern(std::string_view oniguruma);

}  // namespace cua::tokenizer
