// sluice plan: memory before loading, and how many sequences fit.
#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"

namespace sluice::apps {
namespace {

class Plan final : public Invocation {
 public:
  void declare(Flags& f) override {
    declare_model(f, load_);
    f.add("--memory", memory_, "memory to plan for, such as 80GiB (default: what this machine has free)");
    f.add("--sequences", sequences_, "sequences of --context tokens that should fit (0: say how many do)");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice plan qwen.gguf --memory 8GiB --context 4096 --sequences 16");
  }

  Result<int> run(const Flags&) override {
    SLUICE_ASSIGN(const kernels::KernelTable* table, lab::choose_kernels(load_));
    uint64_t memory = lab::available_memory(*table);
    if (!memory_.empty()) {
      SLUICE_ASSIGN(memory, lab::parse_bytes(memory_, "--memory"));
    }
    SLUICE_ASSIGN(auto file, lab::open_weights(load_, false));
    SLUICE_ASSIGN(model::ModelSpec spec, model::read_spec(file->metadata()));
    if (const format::TensorEntry* e = file->find("token_embd.weight")) spec.vocab = int(std::min<int64_t>(e->rows(), model::kMaxVocab));
    if (load_.kv_memory.empty()) load_.kv_memory = "1GiB";  // only the terms that do not depend on it are read below
    SLUICE_ASSIGN(lab::MemoryPlan p, lab::plan_memory(*file, spec, *table, load_, memory));
    const int64_t context = load_.context > 0 ? load_.context : spec.max_context;
    const uint64_t fixed = p.weights_bytes + p.activation_bytes;
    const uint64_t left = memory > fixed ? memory - fixed : 0;
    const uint64_t block_bytes = p.kv_bytes_per_token * uint64_t(load_.block_tokens);
    const int64_t max_tokens = int64_t(left / block_bytes) * load_.block_tokens;
    const int64_t blocks_a_sequence = (context + load_.block_tokens - 1) / load_.block_tokens;
    const int64_t max_sequences = int64_t(left / block_bytes) / blocks_a_sequence;
    const bool fits = max_sequences >= std::max(1, sequences_);
    if (json_) {
      std::cout << nlohmann::ordered_json{{"weights_bytes", p.weights_bytes}, {"kv_bytes_per_token", p.kv_bytes_per_token}, {"activation_bytes", p.activation_bytes},
                                          {"memory_bytes", memory}, {"context", context}, {"max_sequences", max_sequences}, {"max_tokens", max_tokens}, {"fits", fits}}.dump() << "\n";
    } else {
      std::printf("weights        %14.1f MB\nactivations    %14.1f MB\ncache a token  %14.1f KB (%s)\nmemory         %14.1f MB\n\n%ld tokens of cache: %ld sequences of %ld tokens\n%s\n",
                  double(p.weights_bytes) / 1e6, double(p.activation_bytes) / 1e6, double(p.kv_bytes_per_token) / 1e3, load_.kv_type.c_str(), double(memory) / 1e6,
                  max_tokens, max_sequences, context, fits ? "it fits" : "it does not fit");
    }
    return fits ? 0 : 1;
  }

 private:
  lab::LoadOptions load_;
  std::string memory_;
  int sequences_ = 0;
  bool json_ = false;
};

}  // namespace

extern const Command command_plan{"plan", "memory before loading", [] { return std::unique_ptr<Invocation>(new Plan); }};

}  // namespace sluice::apps
