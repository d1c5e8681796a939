#include "lab/workload.h"

#include <algorithm>
#include <numeric>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace sluice::lab {
namespace {

constexpr int kMaxTraceTokens = 1 << 24;

}  // namespace

Result<Distribution> Distribution::parse(const std::string& text, const std::string& field) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ':');) parts.push_back(part);
  std::vector<double> v;
  for (size_t i = 0; i < parts.size(); ++i) {
    char* end = nullptr;
    const double x = std::strtod(parts[i].c_str(), &end);
    if (end && *end == 0 && end != parts[i].c_str() && std::isfinite(x)) v.push_back(x);
    else if (i > 0) return invalid("'" + text + "' is no distribution", field);
  }
  Distribution d;
  if (parts.size() == 1 && v.size() == 1 && v[0] >= 1) {
    d.a_ = v[0];
    return d;
  }
  const std::string kind = parts.empty() ? "" : parts[0];
  if ((kind == "uniform" || kind == "loguniform") && v.size() == 2 && v[0] >= 1 && v[1] >= v[0]) {
    d.kind_ = kind == "uniform" ? Kind::kUniform : Kind::kLogUniform;
    d.a_ = v[0];
    d.b_ = v[1];
    return d;
  }
  if (kind == "lognormal" && v.size() == 4 && v[1] >= 0 && v[2] >= 1 && v[3] >= v[2]) {
    d.kind_ = Kind::kLogNormal;
    d.a_ = v[0];
    d.b_ = v[1];
    d.min_ = v[2];
    d.max_ = v[3];
    return d;
  }
  return invalid("'" + text + "' is no distribution (128, uniform:a:b, loguniform:a:b, lognormal:mu:sigma:min:max)", field);
}

int Distribution::draw(Rng& rng) const {
  switch (kind_) {
    case Kind::kConstant: return int(a_);
    case Kind::kUniform: return int(a_ + double(rng.uniform()) * (b_ - a_ + 1));
    case Kind::kLogUniform: return int(std::exp(std::log(a_) + double(rng.uniform()) * (std::log(b_) - std::log(a_))));
    case Kind::kLogNormal: {
      const double radius = std::sqrt(-2 * std::log(double(rng.uniform())));
      const double z = radius * std::cos(2 * M_PI * double(rng.uniform()));
      return int(std::clamp(std::exp(a_ + b_ * z), min_, max_));
    }
  }
  return 1;
}

Result<std::vector<Arrival>> plan_workload(const WorkloadOptions& o) {
  if (o.requests < 1 || o.requests > 10'000'000) return invalid(std::to_string(o.requests) + " is outside 1..10000000", "--requests");
  std::vector<Arrival> plan;
  Rng rng(o.seed);
  if (!o.trace.empty()) {
    std::ifstream in(o.trace);
    if (!in) return Error{ErrorCode::kNotFound, o.trace + ": cannot be read", "--trace"};
    std::string line;
    std::getline(in, line);
    double first = -1, drawn = 0;
    while (int(plan.size()) < o.requests && std::getline(in, line)) {
      int y, mo, d, h, mi, p, g;
      double s;
      if (std::sscanf(line.c_str(), "%d-%d-%d %d:%d:%lf,%d,%d", &y, &mo, &d, &h, &mi, &s, &p, &g) != 8)
        return bad_file(o.trace + ": line " + std::to_string(plan.size() + 2) + " is not timestamp,tokens,tokens");
      if (d < 1 || d > 31 || h < 0 || h > 23 || mi < 0 || mi > 59 || !(s >= 0 && s < 61) || p > kMaxTraceTokens || g > kMaxTraceTokens)
        return bad_file(o.trace + ": line " + std::to_string(plan.size() + 2) + " is out of range");
      const double at = d * 86400.0 + h * 3600.0 + mi * 60.0 + s;
      if (first < 0) first = at;
      if (o.rate > 0) drawn += -std::log(double(rng.uniform())) / o.rate;
      plan.push_back({o.rate > 0 ? drawn : (at - first) / o.trace_speed, std::max(1, p / o.divide_lengths), std::max(1, g / o.divide_lengths)});
    }
    return plan;
  }
  SLUICE_ASSIGN(Distribution prompt, Distribution::parse(o.prompt_tokens, "--prompt-tokens"));
  SLUICE_ASSIGN(Distribution output, Distribution::parse(o.output_tokens, "--output-tokens"));
  double at = 0;
  for (int i = 0; i < o.requests; ++i) {
    if (o.rate > 0) at += -std::log(double(rng.uniform())) / o.rate;
    const int p = prompt.draw(rng);
    plan.push_back({at, p, output.draw(rng)});
  }
  return plan;
}

Percentiles percentiles_ms(std::vector<double> seconds) {
  auto& v = seconds;
  if (v.empty()) return {};
  std::sort(v.begin(), v.end());
  auto at = [&](double q) { return v[std::min(v.size() - 1, size_t(q * double(v.size())))] * 1e3; };
  return {at(0.5), at(0.9), at(0.99), 1e3 * std::accumulate(v.begin(), v.end(), 0.0) / double(v.size())};
}

}  // namespace sluice::lab
