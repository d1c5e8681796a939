#include "api/batch_input.h"

#include "api/fields.h"
#include "api/generation.h"

namespace sluice::api {

void BatchInput::problem(const char* code, std::string message, std::string param) {
  if (!full()) problems_.push_back({code, std::move(message), std::move(param), number_});
}

void BatchInput::add(std::string_view bytes) {
  while (!bytes.empty() && !full()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (!skipping_ && partial_.size() + piece.size() > kMaxBatchLineBytes) {
      skipping_ = true;
      partial_.clear();
    }
    if (!skipping_) partial_.append(piece);
    if (end == bytes.npos) return;
    bytes.remove_prefix(end + 1);
    line(partial_);
    partial_.clear();
    skipping_ = false;
  }
}

void BatchInput::end() {
  if (!partial_.empty() || skipping_) line(partial_);
  partial_.clear();
  number_ = 0;
  if (lines_.empty() && problems_.empty()) problem("empty_file", "the input file holds no requests", "input_file_id");
}

void BatchInput::line(std::string_view text) {
  ++number_;
  if (skipping_) return problem("line_too_long", "the line is longer than the limit of " + std::to_string(kMaxBatchLineBytes) + " bytes");
  if (text.find_first_not_of(" \t\r") == text.npos) return;
  if (lines_.size() >= max_lines_) {
    if (problems_.empty()) problem("too_many_requests", "the input file holds more than the limit of " + std::to_string(max_lines_) + " requests");
    return;
  }
  const auto json = parse_body(text);
  if (!json.ok()) return problem("invalid_json_line", "the line is no JSON object: " + json.error().message);
  Fields f(*json);
  store::Line out;
  out.custom_id = f.string("custom_id", "", kMaxCustomIdBytes);
  const std::string method = f.string("method", "");
  out.url = f.string("url", "");
  if (!f.status().ok()) return problem("invalid_request", f.status().error().message, f.status().error().field);
  if (out.custom_id.empty() || out.custom_id.find('\0') != std::string::npos)
    return problem("missing_custom_id", "custom_id is required: 1 to " + std::to_string(kMaxCustomIdBytes) + " bytes, none of them 0", "custom_id");
  if (method != "POST") return problem("invalid_method", "method must be POST, got " + brief(Json(method)), "method");
  if (endpoint_.empty() ? !batch_endpoint(out.url) : out.url != endpoint_)
    return problem("invalid_url", "url " + brief(Json(out.url)) +
                                      (endpoint_.empty() ? " is none that a batch may ask for" : " is not the batch's endpoint, " + endpoint_), "url");
  const Json* body = f.find("body");
  if (!body || !body->is_object()) return problem("missing_body", "body must be an object", "body");
  if (Status s = check_model(*body, model_); !s.ok()) return problem("model_not_found", s.error().message, "body.model");
  const std::string model = Fields(*body).string("model", model_.id);
  if (lines_.empty()) first_model_ = model;
  if (model != first_model_)
    return problem("mismatched_model", "every line must name one model: " + brief(Json(model)) + " here, " + brief(Json(first_model_)) + " before",
                   "body.model");
  if (!ids_.insert(out.custom_id).second)
    return problem("duplicate_custom_id", "custom_id " + brief(Json(out.custom_id)) + " stands on an earlier line", "custom_id");
  out.index = int64_t(lines_.size());
  out.body = dump(*body);
  lines_.push_back(std::move(out));
}

}  // namespace sluice::api
