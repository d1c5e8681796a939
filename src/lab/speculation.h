// What `--draft` and `--speculate` ask for, made from files: a draft model loaded and held against its target, and the Speculator
// that an engine takes.
#pragma once
#include <memory>
#include <string>

#include "base/clock.h"
#include "draft/speculator.h"
#include "lab/loaded_model.h"

namespace sluice::lab {

struct SpeculateOptions {
  std::string draft;          // the draft model: a file, a name in the local store, or random:SHAPE, of the target's vocabulary; empty: none
  std::string mode;           // off, ngram (lookups alone), draft (the draft model alone), auto (all); empty: auto with a draft model, else off
  int max_drafts = 8;
  int fixed = -1;             // draft::SpeculatorOptions
  bool suffix = true;
  double oracle = 0;          // > 0: lab/oracle_executor.h stands between the draft model and its device
  std::string verify = "coupled";  // or rejection: more drafts stand at high temperatures, but texts then depend on what was drafted
  std::string chosen() const { return !mode.empty() ? mode : draft.empty() ? "off" : "auto"; }
  bool needs_draft() const { return !draft.empty() && mode != "off" && mode != "ngram"; }
};

// Error naming the flag where the mode is none, or asks for a draft model that is not there.
Status check_speculation(const SpeculateOptions& options);

// Has the target verify as options say, by its scheduler's options. kUnsupported: by rejection on a device, whose logits stay there.
Status set_verification(const SpeculateOptions& options, LoadedModel& target);

// Options of the draft model that `draft` names, beside a target with these: rows of int8 in the place of grouped keys, since its rejected drafts go
// back any number of tokens. vocab: the target's, for random weights.
LoadOptions draft_options(LoadOptions target, const std::string& draft, int vocab);
// What load_model is to leave of the target's device for so many executors of the draft model; nothing on a host, or where there is none.
// Errors: as open_weights and plan_memory.
Result<DraftNeeds> draft_needs(const LoadOptions& target, const SpeculateOptions& options, int executors = 1);
DraftNeeds draft_needs(const MemoryPlan& without_cache, int executors);  // by the draft model's own plan

// A draft model beside its target: same device and threads, draft_options. Its cache has room for the tokens of the target's: on a host within
// a quarter of what is free, on a device as the target's plan left it, which so wants draft_needs. loaded: its weights, where they are there.
// Errors: as load_model; kUnsupported where the two vocabularies differ in a token that both have, naming it.
Result<LoadedModel> load_draft(const LoadedModel& target, const LoadOptions& options, const std::string& draft, const LoadedModel* loaded = nullptr);
Status check_vocabularies(const LoadedModel& target, const LoadedModel& draft);

// Null where the mode is off. draft: what load_draft gave, or null.
Result<std::shared_ptr<draft::Speculator>> make_speculator(const LoadedModel& target, const LoadedModel* draft, const SpeculateOptions& options,
                                                           const Clock* clock);
// Both at once, for those who keep nothing of the draft model.
Result<std::shared_ptr<draft::Speculator>> load_speculator(const LoadedModel& target, const LoadOptions& load, const SpeculateOptions& options,
                                                           const Clock* clock);

}  // namespace sluice::lab
