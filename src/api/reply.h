// Replies that are ready at once: JSON and the OpenAI error object. Pure functions, any thread.
#pragma once
#include <memory>

#include "api/endpoint.h"
#include "api/json.h"

namespace sluice::api {

// {"message","type","param","code"}. A model that is not there has the code model_not_found; every other code is the
// error table's.
Json error_object(const Error& error);

std::unique_ptr<http::Exchange> json_reply(int status, const Json& body);
// The error with its status from the table; overload and unavailability carry Retry-After from the engine.
http::Head error_head(const Error& error, const EnginePort& engine);
std::string error_text(const Error& error);
std::unique_ptr<http::Exchange> error_reply(const Error& error, const EnginePort& engine);

}  // namespace sluice::api
