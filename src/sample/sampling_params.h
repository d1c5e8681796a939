// SamplingParams: what a request asks of the sampler. A value; validated at the edge against the vocabulary and the limits
// here, so the sampler itself has no errors. Order of the chain: penalties and bias, temperature, top_k, top_p, min_p.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace sluice::sample {

struct SamplingParams {
  float temperature = 1.0f;         // [0, 2]; 0 = greedy
  int32_t top_k = 0;                // 0 = off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0; over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; over output
  float frequency_penalty = 0.0f;   // [-2, 2]; over output
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, [-100, 100]
  uint64_t seed = 0;
  int32_t choice = 0;               // index of this sample among a request's n
  int32_t num_logprobs = -1;        // -1 none; 0 the token's own; k also the k most likely (raw distribution)

  bool is_plain_greedy() const {
    return temperature == 0 && repetition_penalty == 1 && presence_penalty == 0 && frequency_penalty == 0 &&
           logit_bias.empty();
  }
};

constexpr int32_t kMaxLogprobs = 20;

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
};

// A sampled token with what the request asked to know of the distribution it came from (before the chain).
struct SampledToken {
  int32_t token = -1;
  float logprob = 0;                  // when num_logprobs >= 0
  std::vector<TokenLogprob> top;      // num_logprobs entries, falling
};

}  // namespace sluice::sample
