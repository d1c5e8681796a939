// Speculative sampling by rejection (Leviathan, Kalman and Matias, arXiv:2211.17192): a draft from distribution q is accepted with
// probability min(1, p / q) of the target's p; where it is not, the token comes from what p has over q. Its distribution is p, and
// of all rules that keep that it accepts most often. Unlike coupled sampling (accept.h) the text then depends on what was drafted.
// Random numbers are pure in (seed, choice, position), from streams apart from the sampler's. Pure; any thread; no errors.
#pragma once
#include <cstdint>
#include <span>

#include "sample/sampling_params.h"

namespace sluice::sample {

struct RejectionOutcome {
  bool accepted = false;
  int32_t token = -1;   // the draft, or what stands in its place
};

// p, q: [V], after each model's whole chain (chain_probabilities). draft was drawn from q.
RejectionOutcome accept_or_replace(std::span<const float> p, std::span<const float> q, int32_t draft, const SamplingParams& params, int64_t position);
// A draft that was guessed without a distribution: q is 1 for it and 0 for the rest.
RejectionOutcome accept_or_replace(std::span<const float> p, int32_t draft, const SamplingParams& params, int64_t position);
// Draws from p with the same kind of numbers, for a draft or for the token after the last draft. stream: 0 for a target, 1 for a draft model.
int32_t draw_from(std::span<const float> p, const SamplingParams& params, int64_t position, uint32_t stream);
// The share of drafts that rejection accepts: the sum of min(p, q).
double rejection_acceptance(std::span<const float> p, std::span<const float> q);

}  // namespace sluice::sample
