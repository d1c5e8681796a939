#include "lab/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace sluice::lab {
namespace {

constexpr int kTextWindow = 512, kMostContext = 4096;  // where --context is silent
constexpr size_t kNumWorst = 10;                       // tokens shown whose nll grew most
constexpr int kShownTokens = 24;                       // of what stands before a worst token

// Where a score came from.
struct Origin {
  const EvalText* text;
  int index;  // of the token in it
};

class Evaluation {
 public:
  explicit Evaluation(const EvalOptions& o) : o_(o) {}

  Result<EvalReport> run() {
    SLUICE_ASSIGN(report_.gate, parse_gate(o_.gate));
    SLUICE_TRY(load());
    SLUICE_TRY(check_gate());
    SLUICE_ASSIGN(data_, read_eval_data(data_options_, model_));
    if (o_.needle) SLUICE_TRY(check_haystack());
    SLUICE_ASSIGN(scorer_, TextScorer::make(model_, reference(), others_));
    SLUICE_TRY(score());
    if (o_.needle) {
      say("needles at five depths of " + std::to_string(o_.needle_context) + " tokens");
      SLUICE_ASSIGN(report_.needle, find_needles(haystack_, o_.needle_context, model_, *scorer_));
    }
    SLUICE_TRY(solve());
    summarise_scores(report_);
    if (report_.has_reference) find_worst();
    apply_gate(report_);
    return std::move(report_);
  }

 private:
  void say(const std::string& line) const {
    if (o_.progress) o_.progress(line);
  }
  const LoadedModel* reference() const { return report_.has_reference ? &reference_ : nullptr; }

  Status load() {
    const bool lines = o_.data.path.ends_with(".jsonl");
    LoadOptions load = o_.load;
    data_options_ = o_.data;
    data_options_.context = load.context > 0 ? load.context : lines ? kMostContext : kTextWindow;
    load.context = std::max(data_options_.context, o_.needle ? o_.needle_context : 0);
    SLUICE_ASSIGN(model_, load_model(load, nullptr));
    if (lines) data_options_.context = std::min(data_options_.context, model_.scheduler.max_context);
    report_.model = model_.name;
    report_.data = o_.data.path;
    report_.context = data_options_.context;
    report_.kv_type = load.kv_type;
    report_.kv_bytes_per_token = model_.memory.kv_bytes_per_token;

    const std::string other = o_.reference_kv_type.empty() ? "f16" : o_.reference_kv_type;
    report_.has_reference = !o_.reference.empty() || other != load.kv_type;
    if (!report_.has_reference) {
      if (!o_.versus.empty()) return invalid("files are compared by a reference: give --reference or another --kv-type", "--versus");
      if (!o_.reference_kv_type.empty()) return invalid("is the model's own, '" + other + "': there is nothing to compare", "--reference-kv-type");
      return {};
    }
    LoadOptions options = load;
    options.kv_type = other;
    options.block_tokens = model_.device.block_tokens;  // both run the same plans
    if (o_.reference.empty()) {
      SLUICE_ASSIGN(reference_, reconfigure(model_, options, available_memory(model_.model->kernels())));
    } else {
      options.model = o_.reference;
      options.random.clear();
      SLUICE_ASSIGN(reference_, load_model(options, nullptr));
    }
    report_.reference = reference_.name;
    report_.reference_kv_type = other;
    report_.reference_kv_bytes_per_token = reference_.memory.kv_bytes_per_token;
    options.kv_type = load.kv_type;
    options.random.clear();
    for (const std::string& path : o_.versus) {
      options.model = path;
      SLUICE_ASSIGN(others_.emplace_back(), load_model(options, nullptr));
      report_.versus.push_back({.model = others_.back().name});
    }
    return {};
  }

  Status check_gate() const {
    for (const GateCondition& g : report_.gate) {
      if ((g.name == "kl" || g.name == "kl_p99" || g.name == "top1" || g.name == "ppl_ratio") && !report_.has_reference)
        return invalid(g.name + " needs a reference: give --reference or another --kv-type", "--gate");
      if (g.name == "needle" && !o_.needle) return invalid("needle is measured with --needle alone", "--gate");
      if (g.name == "accuracy" && !o_.data.path.ends_with(".jsonl")) return invalid("accuracy needs a .jsonl with answers", "--gate");
    }
    return {};
  }

  Status check_haystack() {
    if (o_.needle_context > model_.scheduler.max_context)
      return invalid(std::to_string(o_.needle_context) + " tokens are more than a sequence may have here, " + std::to_string(model_.scheduler.max_context), "--needle-context");
    for (const EvalText& t : data_.texts) haystack_.insert(haystack_.end(), t.tokens.begin() + 1, t.tokens.end());
    return {};
  }

  Status score() {
    int64_t total = 0, run = 0;
    for (const EvalText& t : data_.texts) total += int64_t(t.tokens.size()) - t.first;
    const auto begin = std::chrono::steady_clock::now();
    auto told = begin;
    double nll = 0;
    std::vector<std::vector<TokenScore>> others(others_.size());
    for (const EvalText& t : data_.texts) {
      const size_t before = report_.scores.size();
      SLUICE_TRY(scorer_->score(t.tokens, t.first, report_.scores, others));
      run += int64_t(t.tokens.size());
      for (size_t i = before; i < report_.scores.size(); ++i) {
        origins_.push_back({&t, t.first + int(i - before)});
        nll += report_.scores[i].nll;
      }
      const auto now = std::chrono::steady_clock::now();
      report_.seconds = std::chrono::duration<double>(now - begin).count();
      if (now - told < std::chrono::seconds(2)) continue;
      told = now;
      const double done = double(report_.scores.size());
      char line[160];
      std::snprintf(line, sizeof line, "%.0f of %lld tokens, perplexity so far %.3f, about %.0f s left", done, (long long)total, std::exp(nll / done), report_.seconds * (double(total) / done - 1));
      say(line);
    }
    for (size_t i = 0; i < others.size(); ++i) report_.versus[i].scores = std::move(others[i]);
    report_.tokens_per_s = report_.seconds > 0 ? double(run) / report_.seconds : 0;
    return {};
  }

  Status solve() {
    report_.num_tasks = int(data_.tasks.size());
    if (data_.tasks.empty()) return {};
    say(std::to_string(data_.tasks.size()) + " tasks");
    SLUICE_ASSIGN(const std::vector<double> solved, solve_tasks(data_.tasks, model_, *scorer_, false));
    const Estimate e = estimate(solved);
    report_.accuracy = e.mean;
    report_.accuracy_error = e.error;
    if (!report_.has_reference) return {};
    SLUICE_ASSIGN(const std::vector<double> by_reference, solve_tasks(data_.tasks, reference_, *scorer_, true));
    report_.reference_accuracy = estimate(by_reference).mean;
    return {};
  }

  void find_worst() {
    std::vector<size_t> order(report_.scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto growth = [&](size_t i) { return report_.scores[i].nll - report_.scores[i].reference_nll; };
    const size_t n = std::min(order.size(), kNumWorst);
    std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(n), order.end(), [&](size_t a, size_t b) { return growth(a) > growth(b); });
    for (size_t k = 0; k < n; ++k) {
      const Origin& at = origins_[order[k]];
      const auto token = at.text->tokens.begin() + at.index;
      WorstToken w;
      w.place = o_.data.path.ends_with(".jsonl") ? at.text->place : at.text->place + at.index;
      w.nll = report_.scores[order[k]].nll;
      w.reference_nll = report_.scores[order[k]].reference_nll;
      w.before = model_.tokenizer->decode({token - std::min(at.index, kShownTokens), token}, true);
      w.token = model_.tokenizer->decode({*token}, true);
      report_.worst.push_back(std::move(w));
    }
  }

  const EvalOptions& o_;
  EvalDataOptions data_options_;
  LoadedModel model_, reference_;
  std::vector<LoadedModel> others_;
  EvalData data_;
  std::vector<int32_t> haystack_;
  std::unique_ptr<TextScorer> scorer_;
  std::vector<Origin> origins_;
  EvalReport report_;
};

std::vector<double> column(const std::vector<TokenScore>& scores, double (*of)(const TokenScore&)) {
  std::vector<double> out;
  for (const TokenScore& s : scores) out.push_back(of(s));
  return out;
}
double nll_of(const TokenScore& s) { return s.nll; }
double kl_of(const TokenScore& s) { return s.kl; }
double same_top_of(const TokenScore& s) { return s.same_top ? 1.0 : 0.0; }

// Of two models on the same tokens.
Estimate difference(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b, double (*of)(const TokenScore&)) {
  std::vector<double> out = column(a, of);
  for (size_t i = 0; i < out.size(); ++i) out[i] -= of(b[i]);
  return estimate(out);
}
Estimate ratio(const Estimate& nll_difference) { return {std::exp(nll_difference.mean), std::exp(nll_difference.mean) * nll_difference.error}; }

}  // namespace

void summarise_scores(EvalReport& r) {
  r.tokens = int64_t(r.scores.size());
  if (r.scores.empty()) return;
  const Estimate nll = estimate(column(r.scores, nll_of));
  r.ppl = std::exp(nll.mean);
  r.ppl_error = r.ppl * nll.error;
  if (!r.has_reference) return;
  r.reference_ppl = std::exp(estimate(column(r.scores, [](const TokenScore& s) { return s.reference_nll; })).mean);
  r.ppl_ratio = ratio(estimate(column(r.scores, [](const TokenScore& s) { return s.nll - s.reference_nll; })));
  r.top1 = estimate(column(r.scores, same_top_of));
  std::vector<double> kl = column(r.scores, kl_of);
  r.kl = estimate(kl);
  std::sort(kl.begin(), kl.end());
  r.kl_median = quantile(kl, 0.5);
  r.kl_p99 = quantile(kl, 0.99);
  r.kl_max = kl.back();
  for (VersusRow& v : r.versus) {
    kl = column(v.scores, kl_of);
    v.kl = estimate(kl);
    std::sort(kl.begin(), kl.end());
    v.kl_p99 = quantile(kl, 0.99);
    v.top1 = estimate(column(v.scores, same_top_of));
    v.kl_difference = difference(r.scores, v.scores, kl_of);
    v.ppl_ratio = ratio(difference(r.scores, v.scores, nll_of));
  }
}

void apply_gate(EvalReport& r) {
  int found = 0, needles = 0;
  for (const NeedleRow& n : r.needle) found += n.found, needles += n.of;
  for (GateCondition& g : r.gate) {
    const bool at_least = g.name == "top1" || g.name == "accuracy" || g.name == "needle";
    g.value = g.name == "kl" ? r.kl.mean : g.name == "kl_p99" ? r.kl_p99 : g.name == "top1" ? r.top1.mean : g.name == "ppl" ? r.ppl : g.name == "ppl_ratio" ? r.ppl_ratio.mean
              : g.name == "accuracy" ? r.accuracy : needles ? double(found) / needles : 0;
    g.passed = at_least ? g.value >= g.limit : g.value <= g.limit;  // what is not a number does not pass
  }
}

bool EvalReport::passed() const {
  return std::all_of(gate.begin(), gate.end(), [](const GateCondition& g) { return g.passed; });
}

Estimate estimate(const std::vector<double>& values) {
  const double n = double(values.size());
  if (values.empty()) return {};
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, n > 1 ? std::sqrt(squares / n / (n - 1)) : 0};
}

double quantile(std::vector<double> sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, size_t(q * double(sorted.size())))];
}

Result<std::vector<GateCondition>> parse_gate(const std::string& text) {
  static constexpr const char* kNames[] = {"kl", "kl_p99", "top1", "ppl", "ppl_ratio", "accuracy", "needle"};
  std::vector<GateCondition> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = part.find('=');
    GateCondition g;
    g.name = part.substr(0, equals);
    if (std::none_of(std::begin(kNames), std::end(kNames), [&](const char* n) { return g.name == n; }))
      return invalid("'" + g.name + "' is none of kl, kl_p99, top1, ppl, ppl_ratio, accuracy, needle", "--gate");
    char* rest = nullptr;
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    g.limit = std::strtod(value.c_str(), &rest);
    if (value.empty() || *rest || !std::isfinite(g.limit)) return invalid("'" + part + "' is no name=number", "--gate");
    out.push_back(g);
  }
  return out;
}

Result<EvalReport> evaluate(const EvalOptions& o) { return Evaluation(o).run(); }

}  // namespace sluice::lab
