// Chat messages -> prompt tokens, through the model's template. Pure functions of their arguments; any thread.
#pragma once
#include "api/endpoint.h"
#include "api/generation.h"
#include "api/json.h"

namespace sluice::api {

// Reads messages, tools, tool_choice, documents, chat_template_kwargs, add_generation_prompt and continue_final_message.
// Errors: kInvalidArgument naming the field ("messages[2].content"), or with the template's own message; kContextLength.
Result<Prompt> chat_prompt(const Json& body, const Context& context);

}  // namespace sluice::api
