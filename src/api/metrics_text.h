// Engine statistics as Prometheus text 0.0.4: sluice_* names, and the vllm:* names that routers and dashboards read.
#pragma once
#include <string>

#include "api/endpoint.h"

namespace sluice::api {

std::string metrics_text(const Context& context);

}  // namespace sluice::api
