// The exchange of one generation request: submits it, gathers its events, writes the reply, streamed or whole.
#pragma once
#include <memory>

#include "api/endpoint.h"
#include "api/generation.h"

namespace sluice::api {

// Submits every prompt; when one is refused, the others are cancelled and the refusal is the answer. An error in place of a
// generation is the answer itself.
std::unique_ptr<http::Exchange> generate(Call&& call, Result<Generation>&& generation);

}  // namespace sluice::api
