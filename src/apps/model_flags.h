// The flags that every command with a model shares, and a progress bar for loading.
#pragma once
#include <functional>
#include <string>

#include "apps/flags.h"
#include "lab/loaded_model.h"
#include "lab/speculation.h"

namespace sluice::apps {

void declare_model(Flags& flags, lab::LoadOptions& options);    // MODEL and the device, cache and batch flags
void declare_random(Flags& flags, lab::LoadOptions& options);   // random weights in a model's place
void declare_speculation(Flags& flags, lab::SpeculateOptions& options);  // --draft and --speculate
using LoadProgress = std::function<void(size_t done, size_t total)>;
LoadProgress load_progress();                                   // a bar on standard error, where that is a terminal
Result<lab::LoadedModel> load_with_progress(const lab::LoadOptions& options, const lab::DraftNeeds& draft = {});
Result<std::string> read_text_file(const std::string& path);    // "-": standard input
Result<std::vector<int32_t>> parse_ids(const std::string& text, int vocab, const std::string& field);

}  // namespace sluice::apps
