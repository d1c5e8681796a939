// sluice tune: measures a model on the user's own requests and advises on a server's flags.
#include <cstdio>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"
#include "lab/tune.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

class Tune final : public Invocation {
 public:
  void declare(Flags& f) override {
    declare_model(f, o_.load);
    f.add("--data", o_.data.path, "requests: prompts (.txt), prompts or chats (.jsonl), or a trace (.csv)", true);
    f.add("--output-tokens", o_.data.output_tokens, "of requests that say none: a number or a distribution");
    f.add("--divide-lengths", o_.data.divide_lengths, "of a trace: lengths are divided by this");
    f.add("--memory", o_.memory, "memory for everything, such as 8GiB (default: as serve takes)");
    f.add("--candidate", o_.candidates, "another file of the same model, taken where it is faster and --gate lets it through");
    f.add("--gate", o_.gate, "what other files and types of cache must hold to on your prompts: kl, kl_p99, top1, ppl_ratio");
    declare_speculation(f, o_.speculate);
    f.add("--rate", o_.rate, "latency: requests a second (0: half of what can be served)");
    f.add("--budget-s", o_.budget_s, "seconds that measuring may take, about");
    f.add("--seed", o_.seed, "of arrivals and lengths");
    f.add("--write", config_path_, "the configuration file to write");
    f.add("--report", report_path_, "the report to write, an HTML page");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice tune smollm2.gguf --data prompts.jsonl --objective throughput\n  sluice serve smollm2.gguf --config sluice.toml");
  }

  Result<int> run(const Flags&) override {
    o_.progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    o_.data.seed = o_.seed;
    SLUICE_ASSIGN(const lab::TuneReport r, lab::tune(o_));
    SLUICE_TRY(write(config_path_, lab::tune_config(r), "--write"));
    SLUICE_TRY(write(report_path_, lab::tune_page(r), "--report"));
    if (json_) std::cout << json_of(r).dump() << "\n";
    else print(r);
    return 0;
  }

 private:
  static Status write(const std::string& path, const std::string& text, const char* flag) {
    std::ofstream out(path, std::ios::binary);
    out << text;
    return out.flush() ? Status{} : Status(Error{ErrorCode::kIo, path + ": cannot be written", flag});
  }

  static Json figures_json(const lab::TrialFigures& f) {
    const auto p = [](const lab::Percentiles& x) { return Json{{"p50", x.p50}, {"p90", x.p90}, {"p99", x.p99}}; };
    return {{"output_tok_s", f.output_tok_s}, {"batch_tok_s", f.batch_tok_s}, {"ttft_ms", p(f.ttft_ms)}, {"tpot_ms", p(f.tpot_ms)}, {"itl_ms", p(f.gap_ms)}, {"e2e_ms", p(f.e2e_ms)}};
  }

  Json json_of(const lab::TuneReport& r) const {
    Json steps = Json::array(), config = Json::object();
    for (const lab::TuneStep& s : r.steps) {
      Json candidates = Json::array();
      for (const lab::TuneCandidate& c : s.candidates) {
        Json j{{"setting", c.setting}, {"taken", c.taken}};
        if (c.ratio > 0) j.update({{"ratio", c.ratio}, {"ratio_min", c.ratio_min}, {"ratio_max", c.ratio_max}, {"figures", figures_json(c.figures)}});
        if (!c.why.empty()) j["why"] = c.why;
        if (!c.judged.empty()) j["quality"] = c.judged;
        candidates.push_back(std::move(j));
      }
      Json step{{"name", s.name}, {"result", s.result}, {"candidates", candidates}};
      step["before"] = s.before.requests ? figures_json(s.before) : Json();
      step["after"] = s.before.requests ? figures_json(s.after) : Json();
      steps.push_back(std::move(step));
    }
    for (const auto& [flag, value] : r.config) {
      if (flag == "pool") config[flag].push_back(value);
      else config[flag] = value;
    }
    return {{"model", r.model}, {"objective", r.objective}, {"score", r.score}, {"load", r.load}, {"machine", r.machine}, {"steps", steps}, {"config", config},
            {"beginning", figures_json(r.beginning)}, {"end", figures_json(r.end)}, {"gain", r.gain}, {"result", r.result}, {"seconds", r.seconds},
            {"config_path", config_path_}, {"report_path", report_path_}};
  }

  void print(const lab::TuneReport& r) const {
    std::printf("%s\n%s\n%-22s %12s %12s\n", r.result.c_str(), r.load.c_str(), "", "beginning", "advice");
    const std::tuple<const char*, double, double> lines[] = {
        {"output tokens/s", r.beginning.output_tok_s, r.end.output_tok_s},          {"first token p50, ms", r.beginning.ttft_ms.p50, r.end.ttft_ms.p50},
        {"first token p90, ms", r.beginning.ttft_ms.p90, r.end.ttft_ms.p90},        {"gap p50, ms", r.beginning.gap_ms.p50, r.end.gap_ms.p50},
        {"gap p99, ms", r.beginning.gap_ms.p99, r.end.gap_ms.p99}};
    for (const auto& [name, before, after] : lines) std::printf("%-22s %12.2f %12.2f\n", name, before, after);
    std::printf("\n%s\nwritten: %s, %s\n", lab::tune_config(r).c_str(), config_path_.c_str(), report_path_.c_str());
  }

  lab::TuneOptions o_;
  std::string config_path_ = "sluice.toml", report_path_ = "sluice-tune.html";
  bool json_ = false;
};

}  // namespace

extern const Command command_tune{"tune", "a server's flags, measured on your requests", [] { return std::unique_ptr<Invocation>(new Tune); }};

}  // namespace sluice::apps
