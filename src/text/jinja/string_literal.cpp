#include "text/jinja/string_literal.h"

#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Exactly `count` hex digits at s[pos]; false if they are not there.
bool hex_code(std::string_view s, size_t pos, size_t count, uint32_t& code) {
  if (pos + count > s.size()) return false;
  code = 0;
  for (size_t i = 0; i < count; ++i) {
    const int digit = hex_digit(s[pos + i]);
    if (digit < 0) return false;
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  return true;
}

// The character of a one-letter escape; 0 if it is none.
char simple_escape(char c) {
  switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'a': return '\a';
    case '\\': case '\'': case '"': return c;
    default: return 0;
  }
}

}  // namespace

std::string unescape_string(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    if (s[i] != '\\' || i + 1 == s.size()) {
      out += s[i++];
      continue;
    }
    const char c = s[i + 1];
    const size_t hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (const char simple = simple_escape(c)) {
      out += simple;
      i += 2;
    } else if (c == '\n') {
      i += 2;  // a continued line
    } else if (hex != 0 && hex_code(s, i + 2, hex, code)) {
      utf8_append(out, code);
      i += 2 + hex;
    } else if (c >= '0' && c <= '7') {
      size_t end = i + 1;
      for (; end < s.size() && end < i + 4 && s[end] >= '0' && s[end] <= '7'; ++end) code = code * 8 + static_cast<uint32_t>(s[end] - '0');
      utf8_append(out, code);
      i = end;
    } else {
      out += '\\';
      ++i;
    }
  }
  return out;
}

}  // namespace sluice::text::jinja
