// UTF-8 helpers shared inside text/: decoding that never fails, and the whitespace of Python's str.strip().
// Pure functions, any thread. Units: bytes and code points.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::text {

struct Utf8Char {
  uint32_t code;    // U+FFFD when !valid
  uint8_t length;   // bytes; 1 when !valid
  bool valid;
};

// The character at s[pos]. Precondition: pos < s.size(). Overlong forms, surrogates and stray bytes are not valid.
Utf8Char utf8_at(std::string_view s, size_t pos);
// How many bytes of s[pos..] are a proper beginning of a character that the end of s cuts off; 0 if it is not one.
size_t utf8_cut_tail(std::string_view s, size_t pos);
void utf8_append(std::string& out, uint32_t code);
bool is_unicode_space(uint32_t code);

}  // namespace sluice::text
