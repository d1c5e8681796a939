// Sampler: logits [V] + parameters -> one token, with the log-probabilities that were asked for.
// Log-probabilities are of the raw distribution (before penalties, temperature and truncation).
// Pure but for scratch memory kept per thread; any thread. logits are overwritten, except by plain greedy rows and scores.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sample/sample_row.h"
#include "sample/sampling_params.h"
#include "sample/scan.h"
#include "sample/scratch.h"

namespace sluice::sample {

// A row without changes. position: index of the token to choose.
SampleRow make_row(const SamplingParams& params, int64_t position);
// Appends what a request does to single logits. history: prompt and output so far, of which the first prompt_tokens are
// prompt; banned: never chosen (end tokens before min_tokens); drafts: output that stands after history if this row counts at
// all. Tokens are below vocab.
void add_changes(const SamplingParams& params, std::span<const int32_t> history, int32_t prompt_tokens,
                 std::span<const int32_t> banned, int32_t vocab, std::vector<LogitChange>& out,
                 std::span<const int32_t> drafts = {});

// changes: the row's own. top: room for num_logprobs entries, falling; filled as far as there are tokens.
SampledRow sample_row(std::span<float> logits, const SampleRow& row, std::span<LogitChange> changes, TokenLogprob* top,
                      const Scan& scan = plain_scan);
SampledRow sample_row(std::span<float> logits, const SampleRow& row, std::span<LogitChange> changes, TokenLogprob* top,
                      const Scan& scan, Scratch& scratch);

// The distribution that sample_row draws from: logits become probabilities after the whole chain.
void chain_probabilities(std::span<float> logits, const SampleRow& row, std::span<LogitChange> changes, const Scan& scan = plain_scan);

}  // namespace sluice::sample
