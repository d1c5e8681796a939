// What a backend needs to draw one row's token, as plain data: the parameters of one request at one position, and what
// penalties, bias and bans do to single logits. Made on the host (make_row), read by every backend's sampler alike.
#pragma once
#include <cstdint>

#include "sample/sampling_params.h"

namespace sluice::sample {

struct SampleRow {
  int32_t target = -1;              // >= 0: this token is scored, none is drawn
  float inverse_temperature = 0;    // 0: greedy
  int32_t top_k = 0;                // 0: off
  float top_p = 1;                  // 1: off
  float log_min_p = 0;              // below 0: on
  uint32_t seed_low = 0, seed_high = 0;
  int32_t choice = 0;
  uint32_t position = 0;            // index in the sequence of the token that is chosen
  int32_t num_logprobs = -1;        // as in SamplingParams
  int32_t changes_begin = 0, changes_end = 0;  // of the step's changes
};

// x -> (x > 0 ? x / divide : x * divide) - subtract + add, for one token; a row names each token once.
struct LogitChange {
  int32_t token = 0;
  float divide = 1, subtract = 0, add = 0;  // add: -infinity bans
  float raw = 0;                            // the logit before; the sampler leaves it here
};

struct SampledRow {
  int32_t token = -1;
  float logprob = 0;                // of the raw distribution, where num_logprobs >= 0 or a target is scored
};

}  // namespace sluice::sample
