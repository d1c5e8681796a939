// Escapes of string literals in templates, as in Python. Pure, any thread.
#pragma once
#include <string>
#include <string_view>

namespace sluice::text::jinja {

// The inside of a quoted literal to its value; an escape that Python does not know stays as written.
std::string unescape_string(std::string_view inside);

}  // namespace sluice::text::jinja
