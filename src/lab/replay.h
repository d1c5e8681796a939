// Replay: drives a Scheduler with the inputs that an engine::Recorder wrote, and holds every plan's hash against the recorded
// one: the same inputs must give the same schedule, so a fault seen in production becomes a test.
#pragma once
#include <memory>
#include <string>

#include "base/result.h"
#include "text/tokenizer.h"

namespace sluice::lab {

struct ReplayReport {
  uint64_t steps = 0;         // plans made
  uint64_t equal = 0;         // of them, with the recorded hash
  uint64_t first_unequal = 0; // its number, from 1; 0: none
  std::string difference;     // what the first unequal plan holds
};

// tokenizer: needed where a recorded request has stop strings; may be null. A recording that was cut off ends where it ends.
// Errors: kNotFound; kBadFile naming the line.
Result<ReplayReport> replay(const std::string& path, std::shared_ptr<const text::Tokenizer> tokenizer);

}  // namespace sluice::lab
