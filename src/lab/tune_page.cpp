// The tuner's report as a page for people and as a configuration file.
#include <algorithm>

#include "lab/page.h"
#include "lab/tune.h"

namespace sluice::lab {
namespace {

std::string figures_row(const std::string& name, const TrialFigures& f) {
  return "<tr><td>" + escaped(name) + "</td>" +
         format("<td>%.1f</td><td>%.1f</td><td>%.1f</td><td>%.1f</td><td>%.2f</td><td>%.2f</td><td>%.1f</td></tr>\n", f.output_tok_s, f.ttft_ms.p50, f.ttft_ms.p90, f.ttft_ms.p99,
                f.gap_ms.p50, f.gap_ms.p99, f.e2e_ms.p50);
}

std::string figures_table(const std::vector<std::pair<std::string, const TrialFigures*>>& rows) {
  std::string out = "<div class=wide><table><tr><th></th><th>tokens/s out</th><th>first token p50, ms</th><th>p90</th><th>p99</th><th>gap p50, ms</th><th>p99</th><th>end to end p50, ms</th></tr>\n";
  for (const auto& [name, f] : rows) out += figures_row(name, *f);
  return out + "</table></div>\n";
}

// A bar a candidate: how many times as good as what stood, with the range of the pairs of runs; a line at 1.
std::string plot(const TuneStep& step) {
  std::vector<const TuneCandidate*> measured;
  double most = 1.25;
  for (const TuneCandidate& c : step.candidates)
    if (c.ratio > 0) measured.push_back(&c), most = std::max(most, c.ratio_max);
  if (measured.empty()) return {};
  constexpr double kLeft = 240, kWidth = 460, kRow = 30;
  const double scale = kWidth / most, bottom = kRow * double(measured.size()) + 6;
  std::string out = format("<svg viewBox=\"0 0 840 %.0f\" role=\"img\" aria-label=\"how many times as good as before\">\n", bottom + 24);
  for (size_t i = 0; i < measured.size(); ++i) {
    const TuneCandidate& c = *measured[i];
    const double y = kRow * double(i) + 6;
    const char* kind = c.taken ? "good" : c.ratio < 1 ? "poor" : "same";
    std::string name = c.setting;
    if (name.size() > 32) name = "..." + name.substr(name.size() - 29);
    out += format("<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">", kLeft - 10, y + 15) + escaped(name) + "</text>";
    out += format("<rect class=\"%s\" x=\"%.0f\" y=\"%.1f\" width=\"%.1f\" height=\"18\" rx=\"2\"/>", kind, kLeft, y, c.ratio * scale);
    out += format("<line class=\"range\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", kLeft + c.ratio_min * scale, kLeft + c.ratio_max * scale, y + 9, y + 9);
    out += format("<text x=\"%.1f\" y=\"%.1f\">%.3g%s</text>\n", kLeft + c.ratio_max * scale + 8, y + 15, c.ratio, c.taken ? " taken" : "");
  }
  out += format("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%.1f\"/><text class=\"dim\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">as before</text></svg>\n", kLeft + scale, kLeft + scale, bottom,
                kLeft + scale, bottom + 16);
  return out;
}

std::string step_section(const TuneStep& step) {
  std::string out = "<h2>" + escaped(step.name) + "</h2>\n<p>" + escaped(step.result) + "</p>\n" + plot(step);
  std::string rows;
  for (const TuneCandidate& c : step.candidates)
    if (!c.why.empty() || !c.judged.empty()) rows += "<li>" + escaped(c.setting) + ": " + escaped(c.why) + (c.why.empty() || c.judged.empty() ? "" : "; ") + escaped(c.judged) + "</li>\n";
  if (!rows.empty()) out += "<ul class=dim>\n" + rows + "</ul>\n";
  if (step.before.requests > 0) out += figures_table({{"before", &step.before}, {"after", &step.after}});
  return out;
}

}  // namespace

std::string tune_config(const TuneReport& r) {
  std::string out = "# sluice serve MODEL --config THIS_FILE\n# " + r.model + ", for " + r.objective + ", measured in " + format("%.0f s", r.seconds) + ". " + r.result + "\n";
  std::string pools;
  for (const auto& [flag, value] : r.config) {
    if (flag == "pool") {
      pools += (pools.empty() ? "\"" : ", \"") + value + "\"";
      continue;
    }
    const bool number = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
    out += flag + " = " + (number ? value : "\"" + value + "\"") + "\n";
  }
  if (!pools.empty()) out += "pool = [" + pools + "]\n";
  return out;
}

std::string tune_page(const TuneReport& r) {
  std::string out = page_head(r.model + " tuned");
  out += "<h1>" + escaped(r.model) + ", tuned for " + escaped(r.objective) + "</h1>\n<p>" + escaped(r.result) + "</p>\n";
  out += figures_table({{"beginning", &r.beginning}, {"advice", &r.end}});
  out += "<p class=dim>Compared: " + escaped(r.score) + ". Load: " + escaped(r.load) + ". " + escaped(r.machine) + ". A change is taken where it was better in every pair of runs, and by more than runs of one configuration differ.</p>\n";
  out += "<pre>" + escaped(tune_config(r)) + "</pre>\n";
  for (const TuneStep& s : r.steps) out += step_section(s);
  return out + kPageEnd;
}

}  // namespace sluice::lab
