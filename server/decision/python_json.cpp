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

void append(std::string &out, const Json &value) {  // at most kMostLevels deep
  if (const bool *const boolean = value.boolean()) {
    out += *boolean ? "true" : "false";
  } else if (const double *const real = value.real()) {
    out += python_repr(*real);
  } else if (const Json::Integer *const integer = value.integer()) {
    out += integer->digits;
  } else if (const std::string *const string = value.string()) {
    out += '"';
    append_escaped(out, *string);
    out += '"';
  } else if (const Json::Array *const array = value.array()) {
    out += '[';
    for (size_t i = 0; i < array->size(); ++i) {
      if (i > 0) out += ", ";
      append(out, (*array)[i]);
    }
    out += ']';
  } else if (const Json::Object *const object = value.object()) {
    out += '{';
    for (size_t i = 0; i < object->size(); ++i) {
      if (i > 0) out += ", ";
      out += '"';
      append_escaped(out, (*object)[i].key);
      out += "\": ";
      append(out, (*object)[i].value);
    }
    out += '}';
  } else {
    out += "null";
  }
}

}  // namespace

std::string python_json(const Json &value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace cua_server::decision
