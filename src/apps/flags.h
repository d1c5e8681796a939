// Flags: declares a command's flags and parses them from the command line, the environment (SLUICE_ + upper-case name) and
// a TOML file (--config), later wins. A thin wall around CLI11, whose header stays in one file.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
}

namespace sluice::apps {

class Flags {
 public:
  explicit Flags(CLI::App* app) : app_(app) {}
  // Names as in "-p,--prompt"; a name without dashes is positional.
  Flags& add(const std::string& names, std::string& value, const std::string& help, bool required = false);
  Flags& add(const std::string& names, int& value, const std::string& help);
  Flags& add(const std::string& names, double& value, const std::string& help);
  Flags& add(const std::string& names, uint64_t& value, const std::string& help);
  Flags& add(const std::string& names, std::vector<std::string>& values, const std::string& help);
  Flags& add(const std::string& names, bool& value, const std::string& help);
  void example(const std::string& text);
  // How often the flag was given (by any source).
  bool given(const std::string& name) const;

 private:
  CLI::App* app_;
};

}  // namespace sluice::apps
