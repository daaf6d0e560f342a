// SPDX-License-Identifier: Apache-2.0
#include "decision/python_json.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace cua_server::decision {

namespace {

bool needs_escape(char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }

void append_escape(std::string &out, char c) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\b':
      out += "\\b";
      break;
    case '\t':
      out += "\\t";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\f':
      out += "\\f";
      break;
    case '\r':
      out += "\\r";
      break;
    default:
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[c & 15];
  }
}

}  // namespace

void append_escaped(std::string &out, std::string_view text) {
  while (!text.empty()) {
    const auto at = std::find_if(text.begin(), text.end(), needs_escape);
    const auto plain = static_cast<size_t>(at - text.begin());
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    append_escape(out, text.front());
    text.remove_prefix(1);
  }
}

void append_repr(std::string &out, double value) {
  char buffer[32];  // sign, 17 digits, point, exponent
  const char *const end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  char digit[20];
  size_t n = 0;
  for (const char c : text.substr(0, e)) {
    if (c != '.') digit[n++] = c;
  }
  const std::string_view digits(digit, n);
  int exponent = 0;  // of the first digit; from_chars takes no plus sign
  const size_t sign = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + sign, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    out += digits.front();
    if (digits.size() > 1) out.append(1, '.').append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    const int magnitude = std::abs(exponent);
    if (magnitude < 10) out += '0';
    out += std::to_string(magnitude);
  } else if (exponent < 0) {
    out += "0.";
    out.append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else if (const size_t whole = static_cast<size_t>(exponent) + 1; digits.size() <= whole) {
    out.append(digits).append(whole - digits.size(), '0').append(".0");
  } else {
    out.append(digits, 0, whole).append(1, '.').append(digits, whole);
  }
}

namespace {

void append_quoted(std::string &out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

void append(std::string &out, const Json &value) {  // at most kMostLevels deep
  switch (value.type()) {
    case Json::Type::kNull:
      out += "null";
      break;
    case Json::Type::kBoolean:
      out += value.boolean() ? "true" : "false";
      break;
    case Json::Type::kReal:
      append_repr(out, value.real());
      break;
    case Json::Type::kInteger:
      out += value.text();
      break;
    case Json::Type::kString:
      append_quoted(out, value.text());
      break;
    case Json::Type::kArray: {
      out += '[';
      const Json *item = value.first();
      for (size_t i = 0; i < value.size(); ++i, item = item->next()) {
        if (i > 0) out += ", ";
        append(out, *item);
      }
      out += ']';
      break;
    }
    case Json::Type::kObject: {
      out += '{';
      const Json *key = value.first();
      for (size_t i = 0; i < value.size(); ++i, key = key->next()->next()) {
        if (i > 0) out += ", ";
        append_quoted(out, key->text());
        out += ": ";
        append(out, *key->next());
      }
      out += '}';
      break;
    }
  }
}

}  // namespace

std::string python_json(const Json &value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace cua_server::decision
