#include "api/endpoint.h"
#include "api/reply.h"

namespace sluice::api {
namespace {

std::unique_ptr<http::Exchange> handle(Call&&) { return json_reply(200, Json{{"version", kVersion}}); }

}  // namespace

extern const Endpoint endpoint_version{{{{"GET", "/version"}}}, true, handle};

}  // namespace sluice::api
