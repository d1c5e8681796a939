// What error feedback learns of a site's inputs before its matrices are rounded (quant/calibrate/error_feedback.h, drift.h).
// Memory: four K x K matrices at most, two of which it returns. Threads: as Calibration.
#pragma once
#include <optional>

#include "lab/calibration.h"
#include "quant/calibrate/drift.h"
#include "quant/calibrate/error_feedback.h"

namespace sluice::lab {

struct SiteInputs {
  std::vector<float> importance;  // [K], mean squares
  quant::FeedbackFactor factor;
  quant::Drift drift;
};

// Of the next layer, `rounded` in the place of those of its matrices that are made. Sites are to come in order: the last takes the model as it
// was on. Nothing where the layer has no such site. Errors: as factorize and Calibration::show_layer.
Result<std::optional<SiteInputs>> learn_site(Calibration& calibration, Site site, std::span<const format::TensorEntry> rounded);

}  // namespace sluice::lab
