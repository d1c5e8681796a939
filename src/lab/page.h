// What the pages that reports are written as have in common: a style, and text made safe.
#pragma once
#include <cstdio>
#include <string>

namespace sluice::lab {

std::string escaped(const std::string& text);          // for HTML's text and quoted attributes
std::string page_head(const std::string& title);       // to <body>
inline constexpr const char* kPageEnd = "</body></html>\n";

// At most 511 bytes.
template <class... T>
std::string format(const char* form, T... values) {
  char text[512];
  std::snprintf(text, sizeof text, form, values...);
  return text;
}

}  // namespace sluice::lab
