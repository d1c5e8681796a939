// What one sequence's step costs by its rows: the price of verifying drafts, measured apart from any scheduler.
#pragma once
#include <span>
#include <vector>

#include "lab/loaded_model.h"

namespace sluice::lab {

// Milliseconds of a step of one sequence that computes rows[i] tokens after `context` and draws a token from each; medians of
// `repeats`, all sizes in turn in each repeat. Errors: the device's.
Result<std::vector<double>> step_ms_by_rows(const LoadedModel& model, std::span<const int> rows, int context, int repeats);

// Acceptance of one draft that both models' distributions would give on a text, by either rule, mean over its places from `first`
// on: how often coupled draws agree, and the sum of min(p, q).
struct RuleAcceptance { double coupled = 0, rejection = 0; int places = 0; };
Result<RuleAcceptance> compare_rules(const LoadedModel& target, const LoadedModel& draft, std::span<const int32_t> text, int first, const sample::SamplingParams& params);

}  // namespace sluice::lab
