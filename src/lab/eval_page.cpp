// An evaluation as a page for people: the figures, how KL divergence is spread, where it rises along the window, and the tokens that
// suffer most.
#include <algorithm>
#include <array>
#include <cmath>

#include "lab/evaluate.h"
#include "lab/page.h"

namespace sluice::lab {
namespace {

struct Bar {
  std::string name;
  double value;
  std::string shown;
};

std::string bars(const std::string& label, const std::vector<Bar>& rows) {
  constexpr double kLeft = 200, kWidth = 500, kRow = 24;
  double most = 0;
  for (const Bar& b : rows) most = std::max(most, b.value);
  if (most <= 0) return {};
  std::string out = format("<svg viewBox=\"0 0 840 %.0f\" role=\"img\" aria-label=\"%s\">\n", kRow * double(rows.size()) + 6, label.c_str());
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = kRow * double(i) + 4, width = kWidth * std::max(0.0, rows[i].value) / most;
    out += format("<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">", kLeft - 10, y + 13) + escaped(rows[i].name) + "</text>";
    out += format("<rect class=\"same\" x=\"%.0f\" y=\"%.1f\" width=\"%.1f\" height=\"16\" rx=\"2\"/>", kLeft, y, width);
    out += format("<text class=\"dim\" x=\"%.1f\" y=\"%.1f\">", kLeft + width + 8, y + 13) + escaped(rows[i].shown) + "</text>\n";
  }
  return out + "</svg>\n";
}

std::string row(const std::string& name, const std::string& value) { return "<tr><td>" + escaped(name) + "</td><td>" + value + "</td></tr>\n"; }
std::string with_error(double value, double error) { return format("%.5g &#177; %.2g", value, error); }

std::string kl_spread(const EvalReport& r) {
  std::array<int, 8> count{};  // below 1e-6, then a decade each, 1 and above
  for (const TokenScore& s : r.scores) ++count[size_t(std::clamp(int(std::floor(std::log10(std::max(s.kl, 1e-7)))) + 7, 0, 7))];
  std::vector<Bar> out;
  for (size_t i = 0; i < count.size(); ++i) {
    const std::string name = i == 0 ? "below 1e-6" : i == 7 ? "1 and above" : format("from 1e%d", int(i) - 7);
    out.push_back({name, double(count[i]), format("%.2f %%", 100.0 * count[i] / double(r.scores.size()))});
  }
  return "<h2>How KL divergence is spread</h2>\n<p class=dim>Tokens by the divergence of the prediction for them, in nats.</p>\n" + bars("tokens by KL divergence", out);
}

// Tokens by how sure the reference was of them: does the model fail where the text is easy, or where it is hard?
std::string kl_by_difficulty(const EvalReport& r) {
  constexpr double kEdges[] = {0.1, 0.5, 1, 2, 4, 8, 1e9};
  constexpr const char* kNames[] = {"sure (p above 90 %)", "nll to 0.5", "to 1", "to 2", "to 4", "to 8", "beyond 8"};
  std::array<std::vector<double>, 7> kl;
  for (const TokenScore& s : r.scores) kl[size_t(std::upper_bound(std::begin(kEdges), std::end(kEdges) - 1, s.reference_nll) - std::begin(kEdges))].push_back(s.kl);
  std::vector<Bar> out;
  for (size_t i = 0; i < kl.size(); ++i) {
    const Estimate e = estimate(kl[i]);
    out.push_back({kNames[i], e.mean, format("%.4g, %zu tokens", e.mean, kl[i].size())});
  }
  return "<h2>KL divergence where the reference found the text easy or hard</h2>\n" + bars("mean KL divergence by the reference's nll", out);
}

std::string worst_tokens(const EvalReport& r) {
  std::string out = "<h2>Tokens that suffered most</h2>\n<div class=wide><table><tr><th>text, and the token</th><th>at</th><th>nll</th><th>reference's</th></tr>\n";
  for (const WorstToken& w : r.worst)
    out += "<tr><td>" + escaped(w.before) + "<b>" + escaped(w.token) + "</b></td>" + format("<td>%lld</td><td>%.2f</td><td>%.2f</td></tr>\n", (long long)w.place, w.nll, w.reference_nll);
  return out + "</table></div>\n";
}

std::string needles(const EvalReport& r) {
  std::string out = "<h2>A fact in a long context</h2>\n<table><tr><th>depth</th><th>found</th><th>nll a token</th>";
  out += r.has_reference ? "<th>reference found</th><th>its nll</th></tr>\n" : "</tr>\n";
  for (const NeedleRow& n : r.needle) {
    out += format("<tr><td>%.0f %%</td><td>%d of %d</td><td>%.3f</td>", 100 * n.depth, n.found, n.of, n.nll);
    if (r.has_reference) out += format("<td>%d of %d</td><td>%.3f</td>", n.reference_found, n.of, n.reference_nll);
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

}  // namespace

std::string eval_page(const EvalReport& r) {
  std::string out = page_head(r.model + " judged");
  out += "<h1>" + escaped(r.model) + " on " + escaped(r.data) + "</h1>\n<table>\n";
  out += row("cache", escaped(r.kv_type) + format(", %llu bytes a token", (unsigned long long)r.kv_bytes_per_token));
  if (r.has_reference)
    out += row("reference", escaped(r.reference) + ", cache " + escaped(r.reference_kv_type) + format(", %llu bytes a token", (unsigned long long)r.reference_kv_bytes_per_token));
  out += row("tokens scored", format("%lld, windows of %d", (long long)r.tokens, r.context));
  out += row("perplexity", with_error(r.ppl, r.ppl_error));
  if (r.has_reference) {
    out += row("the reference's", format("%.5g", r.reference_ppl)) + row("perplexity over the reference's", with_error(r.ppl_ratio.mean, r.ppl_ratio.error));
    out += row("KL divergence, mean", with_error(r.kl.mean, r.kl.error)) + row("median", format("%.4g", r.kl_median)) + row("99th percentile", format("%.4g", r.kl_p99));
    out += row("same most likely token", format("%.2f &#177; %.2f %%", 100 * r.top1.mean, 100 * r.top1.error));
    for (const VersusRow& v : r.versus) out += row("KL divergence of " + v.model, with_error(v.kl.mean, v.kl.error)) + row("the model's less it", with_error(v.kl_difference.mean, v.kl_difference.error));
  }
  if (r.num_tasks > 0) {
    out += row("tasks solved", format("%.1f &#177; %.1f %% of %d", 100 * r.accuracy, 100 * r.accuracy_error, r.num_tasks));
    if (r.has_reference) out += row("by the reference", format("%.1f %%", 100 * r.reference_accuracy));
  }
  for (const GateCondition& g : r.gate) out += row("gate: " + g.name + format(" %g", g.limit), format("%.5g, ", g.value) + (g.passed ? "passed" : "<b>failed</b>"));
  out += "</table>\n";
  if (r.has_reference && !r.scores.empty()) out += kl_spread(r) + kl_by_difficulty(r) + worst_tokens(r);
  if (!r.needle.empty()) out += needles(r);
  return out + kPageEnd;
}

}  // namespace sluice::lab
