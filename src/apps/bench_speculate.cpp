#include "apps/bench_speculate.h"

#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/model_flags.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

// "4", "1..8" or "1,2,4".
Result<std::vector<int>> parse_drafts(const std::string& text) {
  std::vector<int> out;
  int a = 0, b = 0, used = 0;
  if (std::sscanf(text.c_str(), "%d..%d%n", &a, &b, &used) == 2 && used == int(text.size())) {
    for (int k = a; k <= b && k <= sched::kMaxDrafts + 1; ++k) out.push_back(k);
  } else {
    const char* p = text.c_str();
    while (std::sscanf(p, "%d%n", &a, &used) == 1) {
      out.push_back(a);
      p += used;
      if (*p == ',') ++p;
    }
    if (*p) out.clear();
  }
  for (const int k : out)
    if (k < 1 || k > sched::kMaxDrafts) out.clear();
  if (out.empty()) return invalid("'" + text + "' is no number, list or range (1..8) within 1.." + std::to_string(sched::kMaxDrafts), "--drafts");
  return out;
}

Result<std::vector<int32_t>> encode(const lab::LoadedModel& m, const std::string& text, bool chat) {
  if (!chat) return m.tokenizer->encode(text, {false, true});
  if (!m.chat_template) return Error{ErrorCode::kUnsupported, m.chat_template_error.empty() ? "the model has no chat template" : m.chat_template_error, "--chat"};
  const auto& t = *m.tokenizer;
  Json context{{"messages", Json::array({{{"role", "user"}, {"content", text}}})}, {"add_generation_prompt", true}};
  context["bos_token"] = t.bos() >= 0 ? t.token_text(t.bos()) : "";
  context["eos_token"] = t.eos() >= 0 ? t.token_text(t.eos()) : "";
  SLUICE_ASSIGN(auto spans, m.chat_template->render(context));
  return t.encode_spans(spans, false);
}

Json ratio_json(const lab::Ratio& r) { return Json::array({r.low, r.high}); }

Json row_json(const lab::SpeculateRow& r) {
  return {{"k", r.k}, {"alpha", r.alpha}, {"accepted_per_step", r.accepted_per_step}, {"v_k", r.v_k}, {"predicted_speedup", r.predicted_speedup},
          {"measured_speedup", r.measured_speedup.value}, {"measured_interval", ratio_json(r.measured_speedup)}};
}

void print_json(const lab::SpeculateReport& r, const std::string& model) {
  Json rows = Json::array();
  for (const lab::SpeculateRow& row : r.rows) rows.push_back(row_json(row));
  Json j{{"model", model}, {"draft", r.draft}, {"c", r.c}, {"step_ms", r.step_ms}, {"prompts", r.prompts}, {"output_tokens", r.output_tokens}, {"rows", rows},
         {"auto", {{"alpha", r.adaptive.alpha}, {"accepted_per_step", r.adaptive.accepted_per_step}, {"measured_speedup", r.adaptive.measured_speedup.value},
                   {"measured_interval", ratio_json(r.adaptive.measured_speedup)}}},
         {"best_k", r.best_k}, {"differing", r.differing}};
  if (r.alpha_rejection > 0) j["rules"] = {{"coupled", r.alpha_coupled}, {"rejection", r.alpha_rejection}};
  j["advice"] = r.advice;
  std::cout << j.dump() << "\n";
}

void print_text(const lab::SpeculateReport& r) {
  std::printf("%d prompts, %d tokens of output; a step takes %.2f ms, a pass of the draft model %.3f of it\n", r.prompts, r.output_tokens, r.step_ms, r.c);
  std::printf("%4s %8s %12s %8s %10s %10s %16s\n", "k", "alpha", "tokens/step", "v_k", "predicted", "measured", "95 %");
  for (const lab::SpeculateRow& row : r.rows)
    std::printf("%4d %8.3f %12.2f %8.3f %10.2f %10.2f %8.2f..%-6.2f\n", row.k, row.alpha, row.accepted_per_step, row.v_k, row.predicted_speedup, row.measured_speedup.value,
                row.measured_speedup.low, row.measured_speedup.high);
  std::printf("%4s %8.3f %12.2f %8s %10s %10.2f %8.2f..%-6.2f\n", "auto", r.adaptive.alpha, r.adaptive.accepted_per_step, "", "", r.adaptive.measured_speedup.value,
              r.adaptive.measured_speedup.low, r.adaptive.measured_speedup.high);
  if (r.alpha_rejection > 0) std::printf("one draft stands with %.3f by coupled sampling, %.3f by rejection\n", r.alpha_coupled, r.alpha_rejection);
  if (r.differing > 0) std::printf("%d replies were other tokens than without drafts\n", r.differing);
  std::printf("%s\n", r.advice.c_str());
}

}  // namespace

Result<int> bench_speculate(SpeculateFlags f) {
  if (f.draft.empty()) return invalid("what drafts is missing: a model, or ngram", "--draft");
  if (!(f.bench.oracle >= 0 && f.bench.oracle <= 1)) return invalid("outside 0..1", "--oracle");
  if (f.bench.oracle > 0 && (f.draft == "ngram" || f.bench.temperature > 0)) return invalid("wants a draft model, and no --temperature", "--oracle");
  if (f.data.empty()) return invalid("the prompts are missing: a .txt, or a .jsonl with \"prompt\"", "--data");
  if (f.bench.max_tokens < 2 || f.bench.max_tokens > 65536) return invalid(std::to_string(f.bench.max_tokens) + " is outside 2..65536", "--tokens");
  if (!(f.bench.temperature >= 0 && f.bench.temperature <= 2)) return invalid("outside 0..2", "--temperature");
  SLUICE_ASSIGN(f.bench.drafts, parse_drafts(f.drafts));
  SLUICE_ASSIGN(std::vector<std::string> texts, lab::read_prompts(f.data));
  if (f.bench.prompts > 0 && texts.size() > size_t(f.bench.prompts)) texts.resize(size_t(f.bench.prompts));
  lab::SpeculateOptions speculate;
  if (f.draft != "ngram") speculate.draft = f.draft;
  SLUICE_ASSIGN(const lab::DraftNeeds needs, lab::draft_needs(f.load, speculate, lab::kBenchDraftExecutors));
  SLUICE_ASSIGN(lab::LoadedModel target, load_with_progress(f.load, needs));
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& text : texts) {
    SLUICE_ASSIGN(auto ids, encode(target, text, f.bench.chat));
    if (!ids.empty()) prompts.push_back(std::move(ids));
  }
  if (f.load.kv_memory.empty()) {
    SLUICE_ASSIGN(target, lab::with_bench_cache(target, f.load, needs, prompts, f.bench));
  }
  std::unique_ptr<lab::LoadedModel> draft;
  if (speculate.needs_draft()) {
    SLUICE_ASSIGN(lab::LoadedModel loaded, lab::load_draft(target, f.load, f.draft));
    draft = std::make_unique<lab::LoadedModel>(std::move(loaded));
  }
  SLUICE_ASSIGN(const lab::SpeculateReport r, lab::bench_speculate(target, draft.get(), prompts, f.bench));
  if (f.json) print_json(r, target.name);
  else print_text(r);
  return r.differing > 0 ? 1 : 0;
}

}  // namespace sluice::apps
