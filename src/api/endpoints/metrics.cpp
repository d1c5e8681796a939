#include "api/metrics_text.h"

namespace sluice::api {
namespace {

std::unique_ptr<http::Exchange> handle(Call&& call) {
  return http::immediate(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, metrics_text(*call.context));
}

}  // namespace

extern const Endpoint endpoint_metrics{{{{"GET", "/metrics"}}}, false, handle};

}  // namespace sluice::api
