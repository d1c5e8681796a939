// The tuner: measures a model on this machine, on the user's own requests, and advises on a server's flags, in the order in which
// one choice bears on the next: pools, cache and batching, quantisation, chunk and step time, speculation.
//
// A change is taken only where it was better in every pair of runs, and by more than the beginning's own runs differ; in the end
// what was taken together is held against the beginning once more, and dropped if it is no better. Runs of two configurations
// alternate, both engines alive, so that a machine's good and bad minutes meet both.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lab/loaded_model.h"
#include "lab/speculation.h"
#include "lab/trial.h"

namespace sluice::lab {

struct TuneOptions {
  LoadOptions load;                     // the beginning; its objective says what is better
  UserRequestOptions data;
  std::string memory;                   // "8GiB": for everything; "": as a server would take
  std::vector<std::string> candidates;  // other files of the same model
  std::string gate = "kl=0.02,top1=0.95";  // on the user's prompts, what another file or type of cache must hold to (lab/evaluate.h)
  SpeculateOptions speculate;           // a draft model to try, and how the beginning speculates
  double rate = 0;                      // requests a second for latency; 0: half of what the beginning can do
  double budget_s = 300;                // about; what is left over at its end is skipped
  uint64_t seed = 1;
  std::function<void(const std::string&)> progress;  // a line for people; may be null
};

using FlagValue = std::pair<std::string, std::string>;  // "block-tokens", "32"

struct TuneCandidate {
  std::string setting;                  // "--block-tokens 32"
  std::vector<FlagValue> flags;
  TrialFigures figures;
  double ratio = 0, ratio_min = 0, ratio_max = 0;  // better than what was, so many times; 0: not measured
  bool taken = false;
  std::string why;                      // it was not taken, or not measured
  std::string judged;                   // its quality on the user's prompts, where that was looked at
};

struct TuneStep {
  std::string name, result;             // "cache and batching"; one sentence
  TrialFigures before, after;           // measured in the same pairs of runs; empty where nothing was
  std::vector<TuneCandidate> candidates;
};

struct TuneReport {
  std::string model, machine, objective, score;  // score: what is compared, in words
  std::string load;                     // the requests, in words
  std::vector<TuneStep> steps;
  std::vector<FlagValue> config;        // flags of serve
  TrialFigures beginning, end;          // of the last comparison
  double gain = 1, gain_min = 1, gain_max = 1;
  std::string result;                   // of it, one sentence
  double seconds = 0;
};

// Errors: as load_model and read_user_requests; kInvalidArgument.
Result<TuneReport> tune(const TuneOptions& options);

// The flags as a file that `serve --config` takes.
std::string tune_config(const TuneReport& report);
// One HTML page, complete in itself.
std::string tune_page(const TuneReport& report);

}  // namespace sluice::lab
