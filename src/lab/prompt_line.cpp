#include "lab/prompt_line.h"

#include <nlohmann/json.hpp>

namespace sluice::lab {

using Json = nlohmann::ordered_json;

const Json& request_of(const Json& line) { return line.contains("body") && line["body"].is_object() ? line["body"] : line; }

Result<PromptLine> read_prompt(const Json& j, const LoadedModel& m, const std::string& where) {
  if (j.contains("prompt") && j["prompt"].is_string()) {
    std::string text = j["prompt"].get<std::string>();
    std::vector<int32_t> tokens;
    if (!text.empty()) tokens = m.tokenizer->encode(text, {.parse_special = false, .add_bos = true});
    return PromptLine{std::move(tokens), std::move(text)};
  }
  if (!j.contains("messages") || !j["messages"].is_array()) return bad_file(where + " has neither \"prompt\", a string, nor \"messages\", a list");
  if (!m.chat_template) return Error{ErrorCode::kUnsupported, where + " is a chat, and the model has no chat template", "--data"};
  auto spans = m.chat_template->render({{"messages", j["messages"]}, {"add_generation_prompt", true}});
  if (!spans.ok()) return bad_file(where + ": " + spans.error().message);
  return PromptLine{m.tokenizer->encode_spans(*spans, true), {}};
}

}  // namespace sluice::lab
