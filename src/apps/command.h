// Command: one subcommand; commands/NAME.cpp defines `command_NAME`, the build lists them.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "apps/flags.h"
#include "base/result.h"

namespace sluice::apps {

// A run of a command: declares its flags, then runs with what they were set to.
class Invocation {
 public:
  virtual ~Invocation() = default;
  virtual void declare(Flags& flags) = 0;
  // The exit status (0 done, 1 a gate failed), or the error that main prints in one line.
  virtual Result<int> run(const Flags& flags) = 0;
};

struct Command {
  const char* name;
  const char* summary;
  std::unique_ptr<Invocation> (*make)();
};

std::span<const Command* const> commands_table();

}  // namespace sluice::apps
