// ChatTemplate: a Jinja2 subset that covers the chat templates of published models. Parsed once, rendered from any thread.
// Values enter and leave as JSON (object key order kept). A render is bounded in steps, depth and output bytes.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "text/tokenizer.h"

namespace sluice::text {

class ChatTemplate {
 public:
  // Errors: kBadFile with line number for a syntax error or a construct outside the subset.
  static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source);
  ~ChatTemplate();

  // context: messages, tools, add_generation_prompt, bos_token, eos_token, ... at top level.
  // The result alternates trusted spans (the template's own text) and untrusted ones, tracked character by character through
  // filters and concatenation; joined, it is the prompt. Untrusted is every string of the context, keys included, but for
  // top-level names that end in _token (bos_token, eos_token...): the caller must not let a request set those.
  // Errors: kInvalidArgument with the message of raise_exception, or naming the line that failed.
  Result<std::vector<Tokenizer::Span>> render(const nlohmann::ordered_json& context) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

// Joined text of a render.
std::string join_spans(const std::vector<Tokenizer::Span>& spans);

}  // namespace sluice::text
