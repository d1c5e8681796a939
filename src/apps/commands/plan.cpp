// sluice plan: memory before loading, how many sequences fit, and the speed that bandwidth allows.
#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"
#include "lab/planner.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

class Plan final : public Invocation {
 public:
  void declare(Flags& f) override {
    declare_model(f, request_.load);
    f.add("--shape", request_.shape, "sizes in a model's place: layers=80,kv_heads=8,head_dim=128,params=70e9 and, if known, q_heads, dim, ffn_dim, vocab, context");
    f.add("--draft", request_.draft, "a second model that proposes tokens, with its own cache");
    f.add("--memory", request_.memory, "memory to plan for, such as 80GiB (default: what is free)");
    f.add("--sequences", request_.sequences, "sequences of --context tokens that should fit (0: say how many do)");
    f.add("--bandwidth", request_.bandwidth_gb_s, "memory bandwidth in GB/s (0: of --hardware)");
    f.add("--hardware", request_.hardware, "h100, h200, cpu or a JSON file (default: measured now)");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice plan qwen.gguf --memory 8GiB --context 4096 --sequences 16\n  sluice plan --shape layers=80,kv_heads=8,head_dim=128,params=70e9 --memory 131GiB --hardware h200");
  }

  Result<int> run(const Flags&) override {
    SLUICE_ASSIGN(const lab::PlanReport p, lab::plan_deployment(request_));
    if (json_) std::cout << json_of(p).dump() << "\n";
    else print(p);
    return p.fits ? 0 : 1;
  }

 private:
  static uint64_t bytes_of(const lab::PlanReport& p, const char* name) {
    uint64_t bytes = 0;
    for (const lab::PlanTerm& t : p.terms)
      if (t.name == name) bytes += t.bytes;
    return bytes;
  }

  static Json json_of(const lab::PlanReport& p) {
    Json terms = Json::array(), speeds = Json::array(), types = Json::object();
    for (const lab::PlanTerm& t : p.terms) terms.push_back({{"name", t.name}, {"bytes", t.bytes}});
    for (const lab::PlanSpeed& s : p.speeds) speeds.push_back({{"sequences", s.sequences}, {"tok_s", s.tok_s}});
    for (const auto& [type, bytes] : p.kv_by_type) types[type] = bytes;
    return {{"weights_bytes", bytes_of(p, "weights")}, {"kv_bytes_per_token", p.kv_bytes_per_token}, {"kv_type", p.kv_type},
            {"kv_bytes_per_token_parts", {{"keys", p.kv_parts.keys}, {"values", p.kv_parts.values}, {"scales", p.kv_parts.scales}}}, {"activation_bytes", bytes_of(p, "activations") + bytes_of(p, "rotary tables")},
            {"memory_bytes", p.memory_bytes}, {"context", p.context}, {"max_sequences", p.max_sequences}, {"max_tokens", p.max_tokens}, {"fits", p.fits},
            {"terms", terms}, {"fixed_bytes", p.fixed_bytes}, {"kv_bytes_per_token_by_type", types}, {"draft_kv_bytes_per_token", p.draft_kv_bytes_per_token},
            {"serve", {{"kv_bytes", p.served.kv_bytes}, {"draft_kv_bytes", p.served.draft_kv_bytes}, {"total_bytes", p.served.total()}}},
            {"bandwidth_gb_s", p.bandwidth_gb_s}, {"bandwidth_source", p.bandwidth_source}, {"speeds", speeds}};
  }

  void print(const lab::PlanReport& p) const {
    for (const lab::PlanTerm& t : p.terms) std::printf("%-20s %12.1f MB   %s\n", t.name.c_str(), double(t.bytes) / 1e6, t.what.c_str());
    std::printf("%-20s %12.1f MB   of %.1f MB\n\n", "together", double(p.fixed_bytes) / 1e6, double(p.memory_bytes) / 1e6);
    std::printf("%-20s", "cache, KB a token");
    for (const auto& [type, bytes] : p.kv_by_type) std::printf(" %12.1f %s%s", double(bytes) / 1e3, type.c_str(), type == p.kv_type ? " *" : "");
    std::printf("\n%-20s keys %.1f, values %.1f, scales %.1f", "", double(p.kv_parts.keys) / 1e3, double(p.kv_parts.values) / 1e3, double(p.kv_parts.scales) / 1e3);
    if (p.draft_kv_bytes_per_token) std::printf(", %.1f more of the draft model", double(p.draft_kv_bytes_per_token) / 1e3);
    std::printf("\n\n%ld tokens of cache: %ld sequences of %ld tokens\n%s\n", p.max_tokens, p.max_sequences, p.context, p.fits ? "it fits" : "it does not fit");
    if (p.served.kv_bytes) {
      std::printf("serve with these flags takes %.1f MB of cache, ", double(p.served.kv_bytes) / 1e6);
      if (p.served.draft_kv_bytes) std::printf("%.1f MB of the draft model's, ", double(p.served.draft_kv_bytes) / 1e6);
      std::printf("%.1f MB in all\n", double(p.served.total()) / 1e6);
    }
    std::printf("\nwhat %.1f GB/s allow (%s), all at %ld tokens:\n", p.bandwidth_gb_s, p.bandwidth_source.c_str(), p.context);
    for (const lab::PlanSpeed& s : p.speeds) std::printf("%8ld sequences %12.1f tokens/s, %8.2f each\n", s.sequences, s.tok_s, s.tok_s / double(s.sequences));
  }

  lab::PlanRequest request_;
  bool json_ = false;
};

}  // namespace

extern const Command command_plan{"plan", "memory before loading", [] { return std::unique_ptr<Invocation>(new Plan); }};

}  // namespace sluice::apps
