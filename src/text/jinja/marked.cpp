#include "text/jinja/marked.h"

#include <algorithm>

namespace sluice::text::jinja {

bool Marked::user_at(size_t pos) const {
  const auto flips_before = std::upper_bound(flips_.begin(), flips_.end(), pos) - flips_.begin();
  return user_ != (flips_before % 2 != 0);
}

void Marked::append(std::string_view text, bool user) {
  if (text.empty()) return;
  if (text_.empty()) user_ = user;
  else if (user_at(text_.size()) != user) flips_.push_back(text_.size());
  text_ += text;
}

void Marked::append_part(const Marked& other, size_t begin, size_t length) {
  if (length == 0) return;
  if (&other == this) return append_part(Marked(other), begin, length);
  const size_t base = text_.size();
  append(std::string_view(other.text_).substr(begin, length), other.user_at(begin));
  auto flip = std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
  for (; flip != other.flips_.end() && *flip < begin + length; ++flip) flips_.push_back(*flip - begin + base);
}

Marked Marked::part(size_t begin, size_t length) const {
  Marked out;
  out.append_part(*this, begin, length);
  return out;
}

}  // namespace sluice::text::jinja
