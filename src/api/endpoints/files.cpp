// /v1/files: upload, list, look at, download, delete.
#include <charconv>

#include "api/job_format.h"
#include "api/jobs.h"
#include "api/multipart.h"
#include "api/query.h"
#include "api/reply.h"
#include "text/utf8_stream.h"

namespace sluice::api {
namespace {

constexpr int64_t kMinLifetime = 3600, kMaxLifetime = 2'592'000, kLifetime = kMaxLifetime;
constexpr size_t kMaxFilenameBytes = 255;
constexpr int64_t kMaxPage = 10'000;

std::unique_ptr<http::Exchange> reply(const Call& call, const Result<Json>& body) {
  return body.ok() ? json_reply(200, *body) : error_reply(body.error(), call.context->front());
}

Status check_filename(const std::string& name) {
  if (name.empty() || name.size() > kMaxFilenameBytes)
    return invalid("file must have a name of 1 to " + std::to_string(kMaxFilenameBytes) + " bytes, got " + std::to_string(name.size()), "file");
  if (!text::is_valid_utf8(name) || name.find('\0') != name.npos) return invalid("file has a name that is not valid UTF-8", "file");
  return {};
}

Result<int64_t> lifetime(std::string_view text) {
  int64_t out = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec == std::errc() && end == text.data() + text.size() && out >= kMinLifetime && out <= kMaxLifetime) return out;
  return invalid("expires_after[seconds] must be an integer from " + std::to_string(kMinLifetime) + " to " + std::to_string(kMaxLifetime) +
                     ", got " + brief(Json(std::string(text.substr(0, 80)))), "expires_after[seconds]");
}

Result<Json> upload(Call& call, store::JobStore& store) {
  SLUICE_ASSIGN(const std::vector<Part> parts, parse_multipart(call.request.header("content-type"), call.request.body));
  const Part* file = nullptr;
  store::File made;
  int64_t lifetime_s = kLifetime;
  for (const Part& part : parts) {
    if (part.name == "file") file = &part;
    else if (part.name == "purpose") made.purpose = std::string(part.content.substr(0, 64));
    else if (part.name == "expires_after[seconds]") {
      SLUICE_ASSIGN(lifetime_s, lifetime(part.content));
    } else if (part.name == "expires_after[anchor]" && part.content != "created_at") {
      return invalid("expires_after[anchor] must be created_at", "expires_after[anchor]");
    }
  }
  if (!file) return invalid("file is required: a part of the form with that name", "file");
  if (made.purpose != "batch")
    return invalid("purpose must be batch, got " + (made.purpose.empty() ? "none" : brief(Json(made.purpose))), "purpose");
  made.filename = file->filename;
  SLUICE_TRY(check_filename(made.filename));
  made.created_s = unix_seconds();
  made.expires_s = made.created_s + lifetime_s;
  SLUICE_ASSIGN(const store::File stored, store.create_file(made, file->content));
  return file_json(stored);
}

Result<Json> list(Call& call, store::JobStore& store) {
  const std::string& query = call.request.query;
  store::FileQuery q;
  SLUICE_ASSIGN(const int64_t limit, query_integer(query, "limit", 1, kMaxPage, kMaxPage));
  const std::string order = query_value(query, "order");
  if (!order.empty() && order != "asc" && order != "desc") return invalid("order must be asc or desc, got " + brief(Json(order)), "order");
  q.limit = limit + 1;
  q.ascending = order == "asc";
  q.after = query_value(query, "after");
  q.purpose = query_value(query, "purpose");
  SLUICE_ASSIGN(const std::vector<store::File> files, store.files(q));
  return page_json(files, size_t(limit), file_json);
}

Result<Json> remove(const std::string& id, store::JobStore& store) {
  SLUICE_TRY(store.delete_file(id));
  return Json{{"id", id}, {"object", "file"}, {"deleted", true}};
}

std::unique_ptr<http::Exchange> content(Call& call, const std::string& id, store::JobStore& store) {
  const auto file = store.file(id);
  return file.ok() ? file_content(call, *file) : error_reply(file.error(), call.context->front());
}

std::unique_ptr<http::Exchange> one(Call& call, store::JobStore& store) {
  std::string id = call.rest;
  const bool wants_content = id.ends_with("/content");
  if (wants_content) id.resize(id.size() - 8);
  if (call.request.method == "DELETE") return reply(call, remove(call.rest, store));
  if (wants_content) return content(call, id, store);
  const auto file = store.file(id);
  return file.ok() ? json_reply(200, file_json(*file)) : error_reply(file.error(), call.context->front());
}

std::unique_ptr<http::Exchange> handle(Call&& call) {
  return answer_from_store(std::move(call), [](Call& c, store::JobStore& store) {
    if (!c.rest.empty()) return one(c, store);
    return reply(c, c.request.method == "POST" ? upload(c, store) : list(c, store));
  });
}

}  // namespace

extern const Endpoint endpoint_files{
    {{{"POST", "/v1/files"}, {"GET", "/v1/files"}, {"GET", "/v1/files/*"}, {"DELETE", "/v1/files/*"}}}, false, handle};

}  // namespace sluice::api
