// Marked: a string that remembers for every byte whether it came from the user. A value type; one thread at a time.
// Every string operation of the interpreter is made of append and part, which keep the marks.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text::jinja {

class Marked {
 public:
  Marked() = default;
  Marked(std::string_view text, bool user) : text_(text), user_(user) {}

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  bool user_at(size_t pos) const;
  bool any_user() const { return !text_.empty() && (user_ || !flips_.empty()); }

  void append(std::string_view text, bool user);
  void append(const Marked& other) { append_part(other, 0, other.size()); }
  void append_part(const Marked& other, size_t begin, size_t length);
  Marked part(size_t begin, size_t length) const;

  // Calls f(std::string_view, bool user) for each run of one origin, in order.
  template <class F>
  void each_run(F f) const {
    size_t begin = 0;
    bool user = user_;
    for (const size_t flip : flips_) {
      f(std::string_view(text_).substr(begin, flip - begin), user);
      begin = flip;
      user = !user;
    }
    if (begin < text_.size()) f(std::string_view(text_).substr(begin), user);
  }

 private:
  std::string text_;
  bool user_ = false;          // origin of the first byte
  std::vector<size_t> flips_;  // ascending offsets inside the text where the origin changes
};

}  // namespace sluice::text::jinja
