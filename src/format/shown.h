// Names that come from a file, as messages show them: short, with anything unprintable replaced.
#pragma once
#include <string>
#include <string_view>

namespace sluice::format {

inline std::string shown(std::string_view name) {
  std::string s(name.substr(0, 120));
  for (char& c : s)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  return s;
}

}  // namespace sluice::format
