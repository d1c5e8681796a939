// sluice replay: a recorded schedule once more; every plan must have the recorded hash.
#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "format/weight_file.h"
#include "lab/loaded_model.h"
#include "lab/replay.h"
#include "model/vocab.h"

namespace sluice::apps {
namespace {

class ReplayCommand final : public Invocation {
 public:
  void declare(Flags& f) override {
    f.add("trace", trace_, "what `sluice serve --record FILE` wrote", true);
    f.add("model", model_, "the model that was served; needed where requests had stop strings");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice replay monday.jsonl");
  }

  Result<int> run(const Flags&) override {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    if (!model_.empty()) {
      SLUICE_ASSIGN(const auto file, format::open_model(lab::resolve_model(model_)));
      SLUICE_ASSIGN(tokenizer, model::build_tokenizer(file->metadata()));
    }
    SLUICE_ASSIGN(const lab::ReplayReport r, lab::replay(trace_, tokenizer));
    const bool same = r.equal == r.steps;
    if (json_) std::cout << nlohmann::ordered_json{{"steps", r.steps}, {"equal", same}, {"equal_steps", r.equal}, {"first_unequal", r.first_unequal}}.dump() << "\n";
    else if (same) std::printf("%lu steps, all as recorded\n", (unsigned long)r.steps);
    else std::printf("%lu steps, %lu as recorded; the first other one is step %lu: %s\n", (unsigned long)r.steps, (unsigned long)r.equal, (unsigned long)r.first_unequal, r.difference.c_str());
    return same ? 0 : 1;
  }

 private:
  std::string trace_, model_;
  bool json_ = false;
};

}  // namespace

extern const Command command_replay{"replay", "a recorded schedule once more, plan by plan", [] { return std::unique_ptr<Invocation>(new ReplayCommand); }};

}  // namespace sluice::apps
