#include "api/endpoint.h"
#include "api/reply.h"

namespace sluice::api {
namespace {

// Readiness: 503 while draining or faulted, with the reason.
std::unique_ptr<http::Exchange> handle(Call&& call) {
  const Context& context = *call.context;
  std::string reason;
  if (context.draining.load()) reason = "draining";
  for (const Pool& p : context.pools) {
    std::string why;
    if (!reason.empty() || p.engine->healthy(why)) continue;
    reason = (context.pools.size() > 1 ? "pool " + p.name + ": " : "") + (why.empty() ? "the engine is not healthy" : why);
  }
  if (reason.empty()) return json_reply(200, Json{{"status", "ok"}});
  Json body;
  body["status"] = "unavailable";
  body["reason"] = reason;
  body["error"] = error_object({ErrorCode::kUnavailable, reason, {}});
  return json_reply(503, body);
}

}  // namespace

extern const Endpoint endpoint_health{
    {{{"GET", "/health"}, {"GET", "/v1/health"}, {"GET", "/ping"}, {"POST", "/ping"}}}, true, handle};

}  // namespace sluice::api
