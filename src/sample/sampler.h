// Sampler: logits [V] + parameters + history -> one token, with the log-probabilities that were asked for.
// Log-probabilities are of the raw distribution (before penalties, temperature and truncation).
// Pure but for scratch memory kept per thread; any thread. logits are overwritten.
#pragma once
#include <cstdint>
#include <span>

#include "sample/sampling_params.h"

namespace sluice::sample {

struct SampleInput {
  std::span<float> logits;                  // [V]
  const SamplingParams* params = nullptr;
  std::span<const int32_t> history;         // prompt and output so far
  int32_t prompt_tokens = 0;                // how many of history are prompt
  int64_t position = 0;                     // index of the token to choose
  std::span<const int32_t> banned;          // never chosen (end tokens before min_tokens)
};

SampledToken sample(const SampleInput& input);

// Log-probability of `target`, and the `num_top` most likely tokens, of raw logits (prompt log-probabilities).
SampledToken score(std::span<const float> logits, int32_t target, int32_t num_top);

// log(sum(exp(x))) in double, in index order.
double log_sum_exp(std::span<const float> x);

}  // namespace sluice::sample
