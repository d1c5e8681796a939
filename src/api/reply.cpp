#include "api/reply.h"

#include <algorithm>

namespace sluice::api {

Json error_object(const Error& error) {
  const ErrorTraits& t = traits(error.code);
  Json out;
  out["message"] = error.message;
  out["type"] = t.api_type;
  out["param"] = error.field.empty() ? Json(nullptr) : Json(error.field);
  out["code"] = t.api_code ? Json(t.api_code) : Json(nullptr);
  if (error.code == ErrorCode::kNotFound && error.field == "model") out["code"] = "model_not_found";
  return out;
}

std::unique_ptr<http::Exchange> json_reply(int status, const Json& body) {
  return http::immediate(status, {{"Content-Type", "application/json"}}, dump(body));
}

http::Head error_head(const Error& error, const EnginePort& engine) {
  http::Head head;
  head.status = traits(error.code).http_status;
  head.headers = {{"Content-Type", "application/json"}};
  if (head.status == 429 || head.status == 503)
    head.headers.emplace_back("Retry-After", std::to_string(std::clamp(engine.retry_after_s(), 1, 120)));
  if (head.status == 401) head.headers.emplace_back("WWW-Authenticate", "Bearer");
  return head;
}

std::string error_text(const Error& error) {
  Json body;
  body["error"] = error_object(error);
  return dump(body);
}

std::unique_ptr<http::Exchange> error_reply(const Error& error, const EnginePort& engine) {
  http::Head head = error_head(error, engine);
  return http::immediate(head.status, std::move(head.headers), error_text(error));
}

}  // namespace sluice::api
