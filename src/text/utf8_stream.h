// Utf8Stream: turns a stream of byte pieces into pieces of whole UTF-8 characters. Holds back at most 3 bytes.
// One stream belongs to one thread.
#pragma once
#include <string>
#include <string_view>

namespace sluice::text {

class Utf8Stream {
 public:
  // Appends bytes; returns every complete character so far. Invalid bytes become U+FFFD at once.
  std::string push(std::string_view bytes);
  // The end: a broken tail becomes one U+FFFD.
  std::string finish();

 private:
  std::string tail_;
};

bool is_valid_utf8(std::string_view s);

}  // namespace sluice::text
