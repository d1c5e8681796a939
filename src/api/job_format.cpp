#include "api/job_format.h"

namespace sluice::api {
namespace {

Json time_json(int64_t unix_s) { return unix_s > 0 ? Json(unix_s) : Json(nullptr); }
Json id_json(const std::string& id) { return id.empty() ? Json(nullptr) : Json(id); }
// JSON that the store keeps as text, our own.
Json stored_json(const std::string& text) {
  if (text.empty()) return nullptr;
  auto json = parse_json(text);
  return json.ok() ? std::move(*json) : Json(nullptr);
}

}  // namespace

Json file_json(const store::File& f) {
  Json out;
  out["id"] = f.id;
  out["object"] = "file";
  out["bytes"] = f.bytes;
  out["created_at"] = f.created_s;
  out["expires_at"] = time_json(f.expires_s);
  out["filename"] = f.filename;
  out["purpose"] = f.purpose;
  out["status"] = "processed";
  return out;
}

Json job_json(const store::Job& j) {
  Json out;
  out["id"] = j.id;
  out["object"] = "batch";
  out["endpoint"] = j.endpoint;
  out["model"] = j.model;
  out["errors"] = stored_json(j.errors);
  out["input_file_id"] = j.input_file_id;
  out["completion_window"] = j.completion_window;
  out["status"] = state_name(j.state);
  out["output_file_id"] = id_json(j.output_file_id);
  out["error_file_id"] = id_json(j.error_file_id);
  out["created_at"] = j.created_s;
  out["in_progress_at"] = time_json(j.in_progress_s);
  out["expires_at"] = time_json(j.expires_s);
  out["finalizing_at"] = time_json(j.finalizing_s);
  out["completed_at"] = time_json(j.completed_s);
  out["failed_at"] = time_json(j.failed_s);
  out["expired_at"] = time_json(j.expired_s);
  out["cancelling_at"] = time_json(j.cancelling_s);
  out["cancelled_at"] = time_json(j.cancelled_s);
  out["request_counts"] = {{"total", j.total}, {"completed", j.completed}, {"failed", j.failed}};
  out["usage"] = {{"input_tokens", j.prompt_tokens}, {"input_tokens_details", {{"cached_tokens", j.cached_tokens}}},
                  {"output_tokens", j.completion_tokens}, {"output_tokens_details", {{"reasoning_tokens", 0}}},
                  {"total_tokens", j.prompt_tokens + j.completion_tokens}};
  out["metadata"] = stored_json(j.metadata);
  return out;
}

Json problems_json(const std::vector<BatchInput::Problem>& problems) {
  Json out;
  out["object"] = "list";
  Json& data = out["data"] = Json::array();
  for (const auto& p : problems) {
    Json one;
    one["code"] = p.code;
    one["message"] = p.message;
    one["param"] = id_json(p.param);
    one["line"] = p.line > 0 ? Json(p.line) : Json(nullptr);
    data.push_back(std::move(one));
  }
  return out;
}

}  // namespace sluice::api
