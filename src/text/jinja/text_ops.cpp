#include "text/jinja/text_ops.h"

#include <algorithm>
#include <cstring>

#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

// Python's line boundaries for str.splitlines().
bool is_line_end(uint32_t c) { return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029; }

// Start of the character that ends before `end`.
size_t previous_char(std::string_view s, size_t end) {
  for (size_t length = 1; length <= 4 && length <= end; ++length) {
    const Utf8Char c = utf8_at(s, end - length);
    if (c.valid && c.length == length) return end - length;
  }
  return end - 1;
}

bool strips(std::string_view s, size_t at, const std::string* chars, size_t& length) {
  const Utf8Char c = utf8_at(s, at);
  length = c.length;
  if (chars == nullptr) return c.valid && is_unicode_space(c.code);
  return chars->find(s.substr(at, c.length)) != std::string::npos;
}

std::vector<Marked> split_spaces(const Marked& s, int64_t limit) {
  std::vector<Marked> out;
  size_t at = 0, length = 0;
  const std::string& text = s.text();
  while (true) {
    while (at < text.size() && strips(text, at, nullptr, length)) at += length;
    if (at >= text.size()) return out;
    if (limit >= 0 && static_cast<int64_t>(out.size()) >= limit) {
      out.push_back(strip(s.part(at, text.size() - at), Side::kRight, nullptr));
      return out;
    }
    const size_t begin = at;
    while (at < text.size() && !strips(text, at, nullptr, length)) at += length;
    out.push_back(s.part(begin, at - begin));
  }
}

bool is_letter(uint32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= 0xC0 && c != 0xD7 && c != 0xF7 && c < 0x2000) || c >= 0x2C00;
}

}  // namespace

Marked strip(const Marked& s, Side side, const std::string* chars) {
  const std::string& text = s.text();
  size_t begin = 0, end = text.size(), length = 0;
  if (side != Side::kRight)
    while (begin < end && strips(text, begin, chars, length)) begin += length;
  if (side != Side::kLeft) {
    while (end > begin) {
      const size_t at = previous_char(text, end);
      if (!strips(text, at, chars, length)) break;
      end = at;
    }
  }
  return s.part(begin, end - begin);
}

std::vector<Marked> split(const Marked& s, const std::string* separator, int64_t limit) {
  if (separator == nullptr) return split_spaces(s, limit);
  std::vector<Marked> out;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = s.text().find(*separator, begin);
    if (at == std::string::npos) break;
    out.push_back(s.part(begin, at - begin));
    begin = at + separator->size();
  }
  out.push_back(s.part(begin, s.size() - begin));
  return out;
}

std::vector<Marked> rsplit(const Marked& s, const std::string& separator, int64_t limit) {
  std::vector<Marked> out;
  size_t end = s.size();
  while ((limit < 0 || static_cast<int64_t>(out.size()) < limit) && end >= separator.size()) {
    const size_t at = s.text().rfind(separator, end - separator.size());
    if (at == std::string::npos) break;
    out.push_back(s.part(at + separator.size(), end - at - separator.size()));
    end = at;
  }
  out.push_back(s.part(0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Marked> split_lines(const Marked& s) {
  std::vector<Marked> out;
  const std::string& text = s.text();
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (!c.valid || !is_line_end(c.code)) {
      i += c.length;
      continue;
    }
    out.push_back(s.part(begin, i - begin));
    i += c.code == '\r' && i + 1 < text.size() && text[i + 1] == '\n' ? 2 : c.length;
    begin = i;
  }
  if (begin < text.size()) out.push_back(s.part(begin, text.size() - begin));
  return out;
}

Marked replace_all(Machine& m, const Marked& s, const std::string& from, const Marked& to, int64_t limit) {
  Marked out;
  const std::string& text = s.text();
  size_t begin = 0;
  for (int64_t done = 0; limit < 0 || done < limit; ++done) {
    m.charge();
    // An empty `from` stands between all characters and at both ends.
    size_t at = from.empty() ? (done == 0 ? 0 : begin < text.size() ? begin + utf8_at(text, begin).length : std::string::npos) : text.find(from, begin);
    if (at == std::string::npos) break;
    out.append_part(s, begin, at - begin);
    out.append(to);
    m.charge_text(to.size());
    if (out.size() > kMaxText) m.fail("a text is longer than " + std::to_string(kMaxText) + " bytes");
    begin = at + from.size();
  }
  out.append_part(s, begin, text.size() - begin);
  return out;
}

uint32_t to_upper(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  if (c == 0xB5) return 0x39C;
  if (c == 0xFF) return 0x178;
  if (c >= 0xE0 && c <= 0xFE && c != 0xF7) return c - 32;
  if ((c >= 0x100 && c <= 0x137 && c != 0x131) || (c >= 0x14A && c <= 0x177) || (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF))
    return c & ~1u;
  if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E)) return c % 2 == 0 ? c - 1 : c;
  if (c == 0x131) return 'I';
  if (c == 0x3C2) return 0x3A3;
  if (c >= 0x3B1 && c <= 0x3C9) return c - 32;
  if (c == 0x3AC) return 0x386;
  if (c >= 0x3AD && c <= 0x3AF) return c - 37;
  if (c >= 0x430 && c <= 0x44F) return c - 32;
  if (c >= 0x450 && c <= 0x45F) return c - 80;
  if (c >= 0x460 && c <= 0x481) return c & ~1u;
  if (c >= 0x561 && c <= 0x586) return c - 48;
  return c;
}

uint32_t to_lower(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 32;
  if (c == 0x178) return 0xFF;
  if ((c >= 0x100 && c <= 0x137 && c != 0x130) || (c >= 0x14A && c <= 0x177) || (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF))
    return c | 1u;
  if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E)) return c % 2 == 1 ? c + 1 : c;
  if (c >= 0x391 && c <= 0x3A9 && c != 0x3A2) return c + 32;
  if (c == 0x386) return 0x3AC;
  if (c >= 0x388 && c <= 0x38A) return c + 37;
  if (c >= 0x410 && c <= 0x42F) return c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  if (c >= 0x460 && c <= 0x481) return c | 1u;
  if (c >= 0x531 && c <= 0x556) return c + 48;
  return c;
}

Marked change_case(const Marked& s, Case to) {
  Marked out;
  std::string one;
  bool inside = false;  // kTitle: after a letter
  for (size_t i = 0; i < s.size();) {
    const Utf8Char c = utf8_at(s.text(), i);
    const bool upper = to == Case::kUpper || (to == Case::kCapital && i == 0) || (to == Case::kTitle && !inside);
    const uint32_t code = upper ? to_upper(c.code) : to_lower(c.code);
    if (!c.valid || code == c.code) {
      out.append_part(s, i, c.length);
    } else {
      one.clear();
      utf8_append(one, code);
      out.append(one, s.user_at(i));
    }
    inside = c.valid && is_letter(c.code);
    i += c.length;
  }
  return out;
}

bool is_ascii(std::string_view s) {
  size_t i = 0;
  for (uint64_t word; i + 8 <= s.size(); i += 8) {
    std::memcpy(&word, s.data() + i, 8);
    if (word & 0x8080808080808080ull) return false;
  }
  for (; i < s.size(); ++i)
    if (static_cast<uint8_t>(s[i]) >= 0x80) return false;
  return true;
}

size_t count_chars(std::string_view s) {
  if (is_ascii(s)) return s.size();
  size_t n = 0;
  for (size_t i = 0; i < s.size(); i += utf8_at(s, i).length) ++n;
  return n;
}

size_t byte_offset(std::string_view s, size_t n) {
  if (n <= s.size() && is_ascii(s.substr(0, n))) return n;
  size_t i = 0;
  while (i < s.size() && n-- > 0) i += utf8_at(s, i).length;
  return i;
}

std::vector<Marked> characters(const Marked& s) {
  std::vector<Marked> out;
  for (size_t i = 0; i < s.size();) {
    const size_t length = utf8_at(s.text(), i).length;
    out.push_back(s.part(i, length));
    i += length;
  }
  return out;
}

}  // namespace sluice::text::jinja
