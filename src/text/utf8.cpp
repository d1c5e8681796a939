#include "text/utf8.h"

namespace sluice::text {
namespace {

// Length that a lead byte announces and the legal range of the byte after it (Unicode table 3-7); length 0: not a lead.
struct Lead {
  uint8_t length, low, high;
};

Lead lead_of(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes from pos on that agree with the lead byte, at most its length.
size_t agreeing(std::string_view s, size_t pos, Lead lead) {
  size_t n = 1;
  while (n < lead.length && pos + n < s.size()) {
    const auto b = static_cast<uint8_t>(s[pos + n]);
    const uint8_t low = n == 1 ? lead.low : 0x80, high = n == 1 ? lead.high : 0xBF;
    if (b < low || b > high) break;
    ++n;
  }
  return n;
}

}  // namespace

Utf8Char utf8_at(std::string_view s, size_t pos) {
  const auto first = static_cast<uint8_t>(s[pos]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  if (lead.length == 0 || agreeing(s, pos, lead) != lead.length) return {0xFFFD, 1, false};
  uint32_t code = first & (0x7F >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) code = code << 6 | (static_cast<uint8_t>(s[pos + i]) & 0x3F);
  return {code, lead.length, true};
}

size_t utf8_cut_tail(std::string_view s, size_t pos) {
  const Lead lead = lead_of(static_cast<uint8_t>(s[pos]));
  if (lead.length < 2) return 0;
  const size_t n = agreeing(s, pos, lead);
  return n < lead.length && pos + n == s.size() ? n : 0;
}

void utf8_append(std::string& out, uint32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

bool is_unicode_space(uint32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace sluice::text
