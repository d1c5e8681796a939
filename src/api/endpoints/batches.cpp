// /v1/batches: create, look at, list, cancel.
#include <charconv>

#include "api/fields.h"
#include "api/job_format.h"
#include "api/jobs.h"
#include "api/query.h"
#include "api/reply.h"

namespace sluice::api {
namespace {

constexpr int64_t kMaxPage = 100, kPage = 20;
constexpr size_t kMaxMetadata = 16, kMaxKey = 64, kMaxValue = 512;
constexpr int64_t kMaxWindow = 30 * 86'400;
constexpr int64_t kMinLifetime = 3600, kMaxLifetime = 2'592'000;

// "24h"; other numbers of s, m, h or d too. 0: not one.
int64_t window_seconds(std::string_view text) {
  int64_t n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc() || end + 1 != text.data() + text.size() || n < 1 || n > kMaxWindow) return 0;
  const int64_t unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86'400 : 0;
  return n * unit <= kMaxWindow ? n * unit : 0;
}

Result<std::string> metadata(const Json* json) {
  if (!json) return std::string();
  const std::string limits = "must be an object of at most " + std::to_string(kMaxMetadata) + " strings of at most " +
                             std::to_string(kMaxValue) + " bytes, with keys of at most " + std::to_string(kMaxKey) + " bytes";
  if (!json->is_object() || json->size() > kMaxMetadata) return invalid("metadata " + limits, "metadata");
  for (const auto& [key, value] : json->items())
    if (key.size() > kMaxKey || !value.is_string() || value.get_ref<const std::string&>().size() > kMaxValue)
      return invalid("metadata " + limits + ": " + brief(Json(key)) + " is not", "metadata");
  return dump(*json);
}

Result<int64_t> output_lifetime(const Json* json) {
  if (!json) return kMaxLifetime;
  if (!json->is_object()) return invalid("output_expires_after must be an object, got " + brief(*json), "output_expires_after");
  Fields f(*json, "output_expires_after.");
  if (f.string("anchor", "created_at") != "created_at") f.fail("anchor", "must be created_at");
  const int64_t out = f.integer("seconds", kMinLifetime, kMaxLifetime, kMaxLifetime);
  SLUICE_TRY(f.status());
  return out;
}

Result<Json> create(Call& call, store::JobStore& store) {
  SLUICE_ASSIGN(const Json body, parse_body(call.request.body));
  Fields f(body);
  store::Job job;
  job.input_file_id = f.string("input_file_id", "", 128);
  job.endpoint = f.string("endpoint", "", 128);
  job.completion_window = f.string("completion_window", "", 32);
  SLUICE_TRY(f.status());
  if (job.input_file_id.empty()) return invalid("input_file_id is required", "input_file_id");
  if (!batch_endpoint(job.endpoint)) return invalid("endpoint " + brief(Json(job.endpoint)) + " is none that a batch may ask for", "endpoint");
  const int64_t window = window_seconds(job.completion_window);
  if (window == 0)
    return invalid("completion_window must be 24h, or another time up to 30d, got " + brief(Json(job.completion_window)), "completion_window");
  SLUICE_ASSIGN(job.metadata, metadata(f.find("metadata")));
  SLUICE_ASSIGN(job.output_lifetime_s, output_lifetime(f.find("output_expires_after")));
  job.model = call.context->model.id;
  job.created_s = unix_seconds();
  job.expires_s = job.created_s + window;
  SLUICE_ASSIGN(const store::Job made, store.create_job(job));
  call.context->jobs->notify();
  return job_json(made);
}

Result<Json> list(Call& call, store::JobStore& store) {
  SLUICE_ASSIGN(const int64_t limit, query_integer(call.request.query, "limit", 1, kMaxPage, kPage));
  SLUICE_ASSIGN(const std::vector<store::Job> jobs, store.jobs(query_value(call.request.query, "after"), limit + 1));
  return page_json(jobs, size_t(limit), job_json);
}

Result<Json> one(const std::string& id, store::JobStore& store) {
  SLUICE_ASSIGN(const store::Job job, store.job(id));
  return job_json(job);
}

Result<Json> cancel(Call& call, store::JobStore& store) {
  if (!call.rest.ends_with("/cancel")) return Error{ErrorCode::kNotFound, "unknown URL: POST " + call.request.path.substr(0, 200), {}};
  SLUICE_ASSIGN(const store::Job job, store.cancel_job(call.rest.substr(0, call.rest.size() - 7), unix_seconds()));
  call.context->jobs->notify();
  return job_json(job);
}

Result<Json> answer(Call& call, store::JobStore& store) {
  const bool post = call.request.method == "POST";
  if (call.rest.empty()) return post ? create(call, store) : list(call, store);
  return post ? cancel(call, store) : one(call.rest, store);
}

std::unique_ptr<http::Exchange> handle(Call&& call) {
  return answer_from_store(std::move(call), [](Call& c, store::JobStore& store) {
    const auto body = answer(c, store);
    return body.ok() ? json_reply(200, *body) : error_reply(body.error(), c.context->front());
  });
}

}  // namespace

extern const Endpoint endpoint_batches{
    {{{"POST", "/v1/batches"}, {"GET", "/v1/batches"}, {"GET", "/v1/batches/*"}, {"POST", "/v1/batches/*"}}}, false, handle};

}  // namespace sluice::api
