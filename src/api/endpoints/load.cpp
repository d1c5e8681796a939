#include "api/endpoint.h"
#include "api/reply.h"

namespace sluice::api {
namespace {

std::unique_ptr<http::Exchange> handle(Call&& call) {
  return json_reply(200, Json{{"server_load", call.context->in_flight.load()}});
}

}  // namespace

extern const Endpoint endpoint_load{{{{"GET", "/load"}}}, false, handle};

}  // namespace sluice::api
