#include "api/endpoint.h"
#include "api/generation_exchange.h"

namespace sluice::api {
namespace {

std::unique_ptr<http::Exchange> handle(Call&& call) {
  auto generation = read_completion(call);
  return generate(std::move(call), std::move(generation));
}

}  // namespace

extern const Endpoint endpoint_completions{{{{"POST", "/v1/completions"}}}, false, handle, true};

}  // namespace sluice::api
