#include "text/utf8_stream.h"

#include "text/utf8.h"

namespace sluice::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  std::string joined;
  if (!tail_.empty()) {
    joined = tail_;
    joined += bytes;
    bytes = joined;
    tail_.clear();
  }
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = utf8_at(bytes, i);
    if (c.valid) {
      out.append(bytes, i, c.length);
    } else if (utf8_cut_tail(bytes, i) > 0) {
      tail_ = bytes.substr(i);  // may yet become a character
      break;
    } else {
      out += kReplacement;
    }
    i += c.length;
  }
  return out;
}

std::string Utf8Stream::finish() {
  std::string out(tail_.empty() ? std::string_view{} : kReplacement);
  tail_.clear();
  return out;
}

bool is_valid_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const Utf8Char c = utf8_at(s, i);
    if (!c.valid) return false;
    i += c.length;
  }
  return true;
}

}  // namespace sluice::text
