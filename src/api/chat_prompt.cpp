#include "api/chat_prompt.h"

#include "api/fields.h"
#include "text/chat_template.h"

namespace sluice::api {
namespace {

using Spans = std::vector<text::Tokenizer::Span>;

// A string as it is, text parts joined; anything else is an error.
Result<std::string> content_text(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return invalid(path + " must be a string or an array of parts, got " + brief(content), path);
  std::string out;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string at = path + "[" + std::to_string(i) + "]";
    if (!part.is_object()) return invalid(at + " must be an object, got " + brief(part), at);
    Fields f(part, at + ".");
    const std::string type = f.string("type", "");
    SLUICE_TRY(f.status());
    if (type != "text") return invalid(at + " is of type " + brief(Json(type)) + "; this model takes text parts only", at);
    if (!f.has("text")) return invalid(at + ".text is required", at + ".text");
    out += f.string("text", "");
    SLUICE_TRY(f.status());
  }
  return out;
}

// Templates read arguments as an object, while the API carries them as JSON text.
Status unfold_tool_calls(Json& calls, const std::string& path) {
  if (!calls.is_array()) return invalid(path + " must be an array, got " + brief(calls), path);
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "].function";
    if (!calls[i].is_object() || !calls[i].contains("function") || !calls[i]["function"].is_object())
      return invalid(at + " must be an object", at);
    Json& function = calls[i]["function"];
    if (!function.contains("name") || !function["name"].is_string()) return invalid(at + ".name must be a string", at + ".name");
    Json& arguments = function["arguments"];
    if (arguments.is_null() || (arguments.is_string() && arguments.get_ref<const std::string&>().empty())) arguments = Json::object();
    if (arguments.is_string()) {
      auto parsed = parse_json(arguments.get_ref<const std::string&>());
      if (!parsed.ok() || !parsed->is_object()) return invalid(at + ".arguments must be the text of a JSON object", at + ".arguments");
      arguments = std::move(*parsed);
    } else if (!arguments.is_object()) {
      return invalid(at + ".arguments must be the text of a JSON object, got " + brief(arguments), at + ".arguments");
    }
  }
  return {};
}

Result<Json> read_message(const Json& in, const std::string& path) {
  if (!in.is_object()) return invalid(path + " must be an object, got " + brief(in), path);
  Fields f(in, path + ".");
  std::string role = f.string("role", "");
  SLUICE_TRY(f.status());
  if (role.empty()) return invalid(path + ".role is required", path + ".role");
  if (role == "developer") role = "system";
  Json out;
  out["role"] = role;
  const bool has_calls = f.has("tool_calls") && !(f.find("tool_calls")->is_array() && f.find("tool_calls")->empty());
  if (const Json* content = f.find("content")) {
    SLUICE_ASSIGN(out["content"], content_text(*content, path + ".content"));
  } else if (has_calls) {
    out["content"] = nullptr;
  } else {
    return invalid(path + ".content is required", path + ".content");
  }
  for (const auto& [key, value] : in.items())
    if (key != "role" && key != "content" && key != "tool_calls" && !value.is_null()) out[key] = value;
  if (has_calls) {
    Json calls = *f.find("tool_calls");
    SLUICE_TRY(unfold_tool_calls(calls, path + ".tool_calls"));
    out["tool_calls"] = std::move(calls);
  }
  return out;
}

Result<Json> read_messages(const Json& body) {
  Fields f(body);
  const Json* in = f.find("messages");
  if (!in) return invalid("messages is required", "messages");
  if (!in->is_array() || in->empty())
    return invalid("messages must be an array of at least one message, got " + std::string(in->is_array() ? "an empty array" : brief(*in)), "messages");
  Json out = Json::array();
  for (size_t i = 0; i < in->size(); ++i) {
    SLUICE_ASSIGN(Json message, read_message((*in)[i], "messages[" + std::to_string(i) + "]"));
    out.push_back(std::move(message));
  }
  return out;
}

// The tools a template may show: none with tool_choice "none"; a forced call needs a grammar, which is not here yet.
Result<Json> read_tools(const Json& body) {
  Fields f(body);
  const Json* tools = f.find("tools");
  const Json* choice = f.find("tool_choice");
  if (choice && !(choice->is_string() && (*choice == "none" || *choice == "auto")))
    return invalid("tool_choice must be none or auto: forced tool calls are not supported yet, got " + brief(*choice), "tool_choice");
  if (!tools || (choice && *choice == "none")) return Json(nullptr);
  if (!tools->is_array()) return invalid("tools must be an array, got " + brief(*tools), "tools");
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string at = "tools[" + std::to_string(i) + "]";
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object())
      return invalid(at + ".function must be an object", at + ".function");
    if (!tool["function"].contains("name") || !tool["function"]["name"].is_string())
      return invalid(at + ".function.name must be a string", at + ".function.name");
  }
  return tools->empty() ? Json(nullptr) : *tools;
}

// The text of a token that the template may write: "" when the model has none.
std::string special_text(const text::Tokenizer& tokenizer, text::TokenId id) {
  return id >= 0 ? tokenizer.token_text(id) : std::string();
}

Result<Json> template_context(const Json& body, const Context& context, bool& continues) {
  Fields f(body);
  Json out = Json::object();
  if (const Json* extra = f.find("chat_template_kwargs")) {
    if (!extra->is_object()) return invalid("chat_template_kwargs must be an object, got " + brief(*extra), "chat_template_kwargs");
    out = *extra;
  }
  continues = f.boolean("continue_final_message", false);
  const bool generates = f.boolean("add_generation_prompt", !continues);
  const std::string effort = f.string("reasoning_effort", "");
  SLUICE_TRY(f.status());
  if (continues && generates)
    return invalid("continue_final_message and add_generation_prompt exclude each other", "continue_final_message");
  SLUICE_ASSIGN(out["messages"], read_messages(body));
  SLUICE_ASSIGN(Json tools, read_tools(body));
  if (!tools.is_null()) out["tools"] = std::move(tools);
  if (const Json* documents = f.find("documents")) {
    if (!documents->is_array()) return invalid("documents must be an array, got " + brief(*documents), "documents");
    out["documents"] = *documents;
  }
  if (!effort.empty()) out["reasoning_effort"] = effort;
  out["add_generation_prompt"] = generates;
  out["bos_token"] = special_text(*context.model.tokenizer, context.model.tokenizer->bos());
  out["eos_token"] = special_text(*context.model.tokenizer, context.model.tokenizer->eos());
  return out;
}

// Drops what the template wrote after the last message, so that the model goes on inside it.
Status cut_after_last(const Json& messages, Spans& spans) {
  const Json& last = messages.back();
  if (last["role"] != "assistant" || !last["content"].is_string() || last["content"].get_ref<const std::string&>().empty())
    return invalid("continue_final_message needs a last message of the assistant with text", "messages");
  std::string content = last["content"].get<std::string>();
  const std::string whole = text::join_spans(spans);
  size_t at = whole.rfind(content);
  if (at == whole.npos) {  // many templates trim
    const size_t first = content.find_first_not_of(" \t\r\n"), end = content.find_last_not_of(" \t\r\n");
    if (first != content.npos) content = content.substr(first, end - first + 1);
    at = whole.rfind(content);
  }
  if (at == whole.npos) return invalid("continue_final_message: the template changed the last message's text", "continue_final_message");
  size_t keep = at + content.size();
  size_t i = 0;
  for (; i < spans.size() && keep > 0; ++i) {
    if (spans[i].text.size() > keep) spans[i].text.resize(keep);
    keep -= spans[i].text.size();
  }
  spans.resize(i);
  return {};
}

}  // namespace

Result<Prompt> chat_prompt(const Json& body, const Context& context) {
  if (!context.model.chat_template)
    return invalid("this model has no chat template; use /v1/completions", "messages");
  bool continues = false;
  SLUICE_ASSIGN(const Json values, template_context(body, context, continues));
  SLUICE_ASSIGN(Spans spans, context.model.chat_template->render(values));
  if (continues) SLUICE_TRY(cut_after_last(values["messages"], spans));
  const auto& tokenizer = *context.model.tokenizer;
  Prompt out;
  out.text = text::join_spans(spans);
  SLUICE_TRY(check_text_size(context, out.text.size(), "messages"));
  const std::string bos = special_text(tokenizer, tokenizer.bos());
  const bool begins = !bos.empty() && out.text.starts_with(bos);
  out.ids = tokenizer.encode_spans(spans, !begins);
  if (out.ids.size() >= 2 && tokenizer.bos() >= 0 && out.ids[0] == tokenizer.bos() && out.ids[1] == tokenizer.bos())
    out.ids.erase(out.ids.begin());
  if (out.ids.empty() && tokenizer.bos() >= 0) out.ids = {tokenizer.bos()};
  if (out.ids.empty()) return invalid("messages encode to no tokens", "messages");
  return out;
}

}  // namespace sluice::api
