#include "text/chat_template.h"

#include <nlohmann/json.hpp>

#include "text/jinja/machine.h"
#include "text/jinja/parser.h"

namespace sluice::text {
namespace {

constexpr size_t kMaxSource = 4u << 20;

std::string one_line(std::string s) {
  for (char& c : s)
    if (c == '\n' || c == '\r') c = ' ';
  return s;
}

std::string describe(const jinja::Failure& failure) {
  return one_line(failure.raised ? failure.message : "chat template, line " + std::to_string(failure.line) + ": " + failure.message);
}

}  // namespace

struct ChatTemplate::Program {
  jinja::Ast ast;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSource) return bad_file("chat template has " + std::to_string(source.size()) + " bytes, more than " + std::to_string(kMaxSource));
  auto program = std::make_unique<Program>();
  try {
    jinja::parse_template(source, program->ast);
  } catch (const jinja::Failure& failure) {
    return bad_file(describe(failure));
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInternal, one_line(std::string("chat template: ") + e.what()), {}};
  }
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(program)));
}

Result<std::vector<Tokenizer::Span>> ChatTemplate::render(const nlohmann::ordered_json& context) const {
  if (!context.is_object()) return invalid("the context of a chat template is not a JSON object");
  try {
    const jinja::Marked output = jinja::Machine(program_->ast).run(context);
    std::vector<Tokenizer::Span> spans;
    output.each_run([&](std::string_view text, bool user) { spans.push_back({std::string(text), !user}); });
    return spans;
  } catch (const jinja::Failure& failure) {
    return invalid(describe(failure), "messages");
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInternal, one_line(std::string("chat template: ") + e.what()), {}};
  }
}

std::string join_spans(const std::vector<Tokenizer::Span>& spans) {
  std::string out;
  for (const Tokenizer::Span& span : spans) out += span.text;
  return out;
}

}  // namespace sluice::text
