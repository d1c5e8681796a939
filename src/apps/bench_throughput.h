// sluice bench throughput: lists of requests through the engine, without HTTP; prints what lab/bench_throughput.h reports.
#pragma once
#include <string>

#include "base/result.h"
#include "lab/load_generator.h"
#include "lab/loaded_model.h"

namespace sluice::apps {

struct ThroughputFlags {
  lab::LoadOptions load;            // max_sequences 0: every request, at most 1024
  lab::GeneratorOptions generator;  // its lengths, number of requests and seed
  std::string lengths;              // FILE or FILE:LIST in their place
  bool limit_requests = false;      // of the list's, take the generator's number
  bool json = false;
};

Result<int> bench_throughput(ThroughputFlags flags);

}  // namespace sluice::apps
