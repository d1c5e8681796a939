// sluice eval: what a model, or a type of cache, is worth on the user's own text; its exit status is a gate.
#include <cstdio>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"
#include "lab/evaluate.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

class Eval final : public Invocation {
 public:
  void declare(Flags& f) override {
    declare_model(f, o_.load);
    f.add("--data", o_.data.path, "the text: .txt, or .jsonl of prompts and, if wanted, answers", true);
    f.add("--reference", o_.reference, "another file of the same model, to compare with token by token");
    f.add("--reference-kv-type", o_.reference_kv_type, "the reference's type of cache (default f16; without --reference: of the same weights)");
    f.add("--versus", o_.versus, "other files of the same model, judged beside it against the same reference; may stand several times");
    f.add("--tokens", tokens_, "tokens scored at most (0: all)");
    f.add("-n,--max-tokens", o_.data.max_tokens, "of an answer, where its line says nothing");
    f.add("--needle", o_.needle, "also look for facts hidden at several depths of a long context");
    f.add("--needle-context", o_.needle_context, "tokens of that context");
    f.add("--gate", o_.gate, "limits that decide the exit status: kl=0.05,kl_p99=1,top1=0.95,ppl=20,ppl_ratio=1.02,accuracy=0.8,needle=1");
    f.add("--report", report_path_, "a page to write, HTML with plots");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice eval model-q4_k_m.gguf --reference model-f16.gguf --data mine.txt --gate kl=0.05,top1=0.95");
  }

  Result<int> run(const Flags&) override {
    if (tokens_ < 0) return invalid("must not be negative", "--tokens");
    o_.data.tokens = tokens_;
    o_.progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    SLUICE_ASSIGN(const lab::EvalReport r, lab::evaluate(o_));
    if (!report_path_.empty()) {
      std::ofstream out(report_path_, std::ios::binary);
      out << lab::eval_page(r);
      if (!out.flush()) return Error{ErrorCode::kIo, report_path_ + ": cannot be written", "--report"};
    }
    if (json_) std::cout << json_of(r).dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    else print(r);
    return r.passed() ? 0 : 1;
  }

 private:
  static Json json_of(const lab::EvalReport& r) {
    const auto paired = [&](double v) { return r.has_reference ? Json(v) : Json(); };
    const auto scored = [&](double v) { return r.tokens ? Json(v) : Json(); };
    Json j{{"model", r.model}, {"data", r.data}, {"context", r.context}, {"kv_type", r.kv_type}, {"kv_bytes_per_token", r.kv_bytes_per_token}, {"tokens", r.tokens},
           {"ppl", scored(r.ppl)}, {"ppl_stderr", scored(r.ppl_error)}};
    if (r.has_reference)
      j.update({{"reference", r.reference}, {"reference_kv_type", r.reference_kv_type}, {"reference_kv_bytes_per_token", r.reference_kv_bytes_per_token}});
    j.update({{"reference_ppl", paired(r.reference_ppl)}, {"ppl_ratio", paired(r.ppl_ratio.mean)}, {"ppl_ratio_stderr", paired(r.ppl_ratio.error)}, {"kl_mean", paired(r.kl.mean)},
              {"kl_stderr", paired(r.kl.error)}, {"kl_median", paired(r.kl_median)}, {"kl_p99", paired(r.kl_p99)}, {"kl_max", paired(r.kl_max)}, {"top1_agreement", paired(r.top1.mean)},
              {"top1_stderr", paired(r.top1.error)}, {"accuracy", r.num_tasks ? Json(r.accuracy) : Json()}});
    if (r.num_tasks) j.update({{"accuracy_stderr", r.accuracy_error}, {"reference_accuracy", paired(r.reference_accuracy)}, {"tasks", r.num_tasks}});
    Json worst = Json::array(), needle = Json::array(), versus = Json::array(), conditions = Json::array();
    for (const lab::WorstToken& w : r.worst) worst.push_back({{"at", w.place}, {"nll", w.nll}, {"reference_nll", w.reference_nll}, {"before", w.before}, {"token", w.token}});
    for (const lab::NeedleRow& n : r.needle) {
      needle.push_back({{"depth", n.depth}, {"found", n.found}, {"of", n.of}, {"nll", n.nll}});
      if (r.has_reference) needle.back().update({{"reference_found", n.reference_found}, {"reference_nll", n.reference_nll}});
    }
    for (const lab::GateCondition& g : r.gate) conditions.push_back({{"name", g.name}, {"limit", g.limit}, {"value", g.value}, {"passed", g.passed}});
    for (const lab::VersusRow& v : r.versus)
      versus.push_back({{"model", v.model}, {"kl_mean", v.kl.mean}, {"kl_stderr", v.kl.error}, {"kl_p99", v.kl_p99}, {"top1_agreement", v.top1.mean}, {"top1_stderr", v.top1.error},
                        {"kl_difference", v.kl_difference.mean}, {"kl_difference_stderr", v.kl_difference.error}, {"ppl_ratio", v.ppl_ratio.mean}, {"ppl_ratio_stderr", v.ppl_ratio.error}});
    if (!r.versus.empty()) j["versus"] = versus;
    j["worst"] = worst;
    if (!r.needle.empty()) j["needle"] = needle;
    j["gate"] = r.gate.empty() ? Json() : Json{{"passed", r.passed()}, {"conditions", conditions}};
    j.update({{"seconds", r.seconds}, {"tokens_per_s", r.tokens_per_s}});
    return j;
  }

  static void print(const lab::EvalReport& r) {
    std::printf("%s, cache %s (%llu bytes a token), %s\n", r.model.c_str(), r.kv_type.c_str(), (unsigned long long)r.kv_bytes_per_token, r.data.c_str());
    if (r.has_reference) std::printf("reference %s, cache %s (%llu bytes a token)\n", r.reference.c_str(), r.reference_kv_type.c_str(), (unsigned long long)r.reference_kv_bytes_per_token);
    if (r.tokens) std::printf("%-28s %lld, windows of %d, %.0f tokens/s\n%-28s %.4f +- %.4f\n", "tokens scored", (long long)r.tokens, r.context, r.tokens_per_s, "perplexity", r.ppl, r.ppl_error);
    if (r.tokens && r.has_reference) {
      std::printf("%-28s %.4f\n%-28s %.5f +- %.5f\n", "the reference's", r.reference_ppl, "over the reference's", r.ppl_ratio.mean, r.ppl_ratio.error);
      std::printf("%-28s %.6f +- %.6f, median %.6f, p99 %.5f, most %.3f\n", "KL divergence", r.kl.mean, r.kl.error, r.kl_median, r.kl_p99, r.kl_max);
      std::printf("%-28s %.2f +- %.2f %%\n", "same most likely token", 100 * r.top1.mean, 100 * r.top1.error);
      for (const lab::VersusRow& v : r.versus)
        std::printf("versus %s\n%-28s %.6f +- %.6f, p99 %.5f\n%-28s %+.6f +- %.6f\n%-28s %.5f +- %.5f\n", v.model.c_str(), "  its KL divergence", v.kl.mean, v.kl.error, v.kl_p99,
                    "  the model's less its", v.kl_difference.mean, v.kl_difference.error, "  perplexity over its", v.ppl_ratio.mean, v.ppl_ratio.error);
    }
    if (r.num_tasks) std::printf("%-28s %.1f +- %.1f %% of %d", "tasks solved", 100 * r.accuracy, 100 * r.accuracy_error, r.num_tasks);
    if (r.num_tasks) std::printf(r.has_reference ? ", the reference %.1f %%\n" : "\n", 100 * r.reference_accuracy);
    for (const lab::NeedleRow& n : r.needle) {
      std::printf("needle at %3.0f %%               found %d of %d, nll %.3f", 100 * n.depth, n.found, n.of, n.nll);
      if (r.has_reference) std::printf("; reference %d of %d, %.3f", n.reference_found, n.of, n.reference_nll);
      std::printf("\n");
    }
    for (size_t i = 0; i < std::min<size_t>(r.worst.size(), 5); ++i)
      std::printf("%s%8.2f from %.2f at %lld: ...%s[%s]\n", i ? "" : "nll that grew most:\n", r.worst[i].nll, r.worst[i].reference_nll, (long long)r.worst[i].place, one_line(r.worst[i].before).c_str(), one_line(r.worst[i].token).c_str());
    for (const lab::GateCondition& g : r.gate) std::printf("gate %s %g: %.6g %s\n", g.name.c_str(), g.limit, g.value, g.passed ? "passed" : "FAILED");
  }

  static std::string one_line(std::string text) {
    for (char& c : text)
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    return text;
  }

  lab::EvalOptions o_;
  int tokens_ = 0;
  std::string report_path_;
  bool json_ = false;
};

}  // namespace

extern const Command command_eval{"eval", "quality on your own text, beside a reference", [] { return std::unique_ptr<Invocation>(new Eval); }};

}  // namespace sluice::apps
