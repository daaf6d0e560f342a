// SPDX-License-Identifier: Apache-2.0
#include "decision/python_json.h"

#include <charconv>
#include <cstdlib>

namespace cua_server::decision {

void append_escaped(std::string &out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
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
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20) {
          out += "\\u00";
          out += kHex[byte >> 4];
          out += kHex[byte & 15];
        } else {
          out += c;
        }
      }
    }
  }
}

std::string python_repr(double value) {
  char buffer[32];  // sign, 17 digits, point, exponent
  const char *const end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const bool negative = text.front() == '-';
  std::string digits;
  for (const char c : text.substr(negative ? 1 : 0, e - (negative ? 1 : 0))) {
    if (c != '.') digits += c;
  }
  int exponent = 0;  // of the first digit; from_chars takes no plus sign
  const size_t sign = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + sign, text.data() + text.size(), exponent);
  std::string out;
  if (negative) out += '-';
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
  return out;
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
      out += python_repr(value.real());
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
