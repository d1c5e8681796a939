// String operations on marked text, by code point and with Python's rules. Pure but for the Machine's charges.
#pragma once
#include <string_view>
#include <vector>

#include "text/jinja/machine.h"

namespace sluice::text::jinja {

enum class Side { kBoth, kLeft, kRight };
// strip(): of whitespace, or of any character in `chars`.
Marked strip(const Marked& s, Side side, const std::string* chars);
// split(separator, limit); separator nullptr: runs of whitespace. limit < 0: none.
std::vector<Marked> split(const Marked& s, const std::string* separator, int64_t limit);
std::vector<Marked> rsplit(const Marked& s, const std::string& separator, int64_t limit);
std::vector<Marked> split_lines(const Marked& s);
Marked replace_all(Machine& m, const Marked& s, const std::string& from, const Marked& to, int64_t limit);

enum class Case { kUpper, kLower, kCapital, kTitle };
// Latin, Greek and Cyrillic letters with one-to-one mappings; others stay.
Marked change_case(const Marked& s, Case to);
uint32_t to_upper(uint32_t code);
uint32_t to_lower(uint32_t code);

size_t count_chars(std::string_view s);
std::vector<Marked> characters(const Marked& s);
// Byte offset of the n-th character; s.size() beyond the end.
size_t byte_offset(std::string_view s, size_t n);
bool is_ascii(std::string_view s);

}  // namespace sluice::text::jinja
