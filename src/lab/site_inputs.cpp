#include "lab/site_inputs.h"

namespace sluice::lab {

Result<std::optional<SiteInputs>> learn_site(Calibration& c, Site site, std::span<const format::TensorEntry> rounded) {
  const quant::Parallel parallel = [&](int n, const std::function<void(int)>& fn) { c.parallel(n, fn); };
  std::optional<quant::Hessian> hessian;
  std::optional<quant::Drift> drift;
  const auto collect = [&](Site, const float* before, const float* rows, int count, int cols) {
    if (!hessian) hessian.emplace(cols), drift.emplace(cols);
    hessian->add(rows, count, parallel);
    drift->add(before, rows, count, parallel);
  };
  SLUICE_TRY(c.show_layer(collect, site, rounded, site == kSites[kNumSites - 1]));
  if (!hessian) return std::optional<SiteInputs>();
  SLUICE_ASSIGN(quant::FeedbackFactor factor, quant::factorize(*hessian, {}, parallel));
  return std::optional(SiteInputs{hessian->diagonal(), std::move(factor), std::move(*drift)});
}

}  // namespace sluice::lab
