#include "api/service.h"

#include <chrono>
#include <random>

#include "api/endpoint.h"
#include "api/jobs.h"
#include "api/reply.h"

namespace sluice::api {
namespace {

// The client's own id when it is short and plain enough to stand in headers, ids and logs.
std::string request_id(const http::Request& request) {
  const std::string_view given = request.header("x-request-id");
  bool plain = !given.empty() && given.size() <= 128;
  for (const char c : given)
    plain = plain && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.');
  return plain ? std::string(given) : fresh_request_id();
}

// Adds the headers that every reply carries.
class Decorated final : public http::Exchange {
 public:
  Decorated(std::unique_ptr<http::Exchange> inner, http::Headers headers)
      : inner_(std::move(inner)), headers_(std::move(headers)) {}
  void start(std::function<void()> wake) override { inner_->start(std::move(wake)); }
  http::Poll poll() override {
    http::Poll out = inner_->poll();
    if (out.head)
      for (auto& h : headers_) out.head->headers.push_back(std::move(h));
    return out;
  }
  void abandon() noexcept override { inner_->abandon(); }

 private:
  std::unique_ptr<http::Exchange> inner_;
  http::Headers headers_;
};

http::Headers common_headers(const ServiceOptions& options, const std::string& id) {
  http::Headers out{{"x-request-id", id}};
  if (options.cors_origin.empty()) return out;
  out.emplace_back("Access-Control-Allow-Origin", options.cors_origin);
  out.emplace_back("Access-Control-Expose-Headers", "x-request-id, retry-after");
  if (options.cors_origin != "*") out.emplace_back("Vary", "Origin");
  return out;
}

// The answer to OPTIONS, which browsers send without a key. "*" does not cover Authorization, so headers are echoed.
std::unique_ptr<http::Exchange> preflight(const Context& context, const http::Request& request) {
  http::Headers out{{"Allow", "GET, POST, DELETE, HEAD, OPTIONS"}};
  if (!context.options.cors_origin.empty()) {
    const std::string_view wanted = request.header("access-control-request-headers");
    out.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    out.emplace_back("Access-Control-Allow-Headers", wanted.empty() ? "authorization, content-type, x-api-key, x-request-id" : std::string(wanted));
    out.emplace_back("Access-Control-Max-Age", "86400");
  }
  return http::immediate(204, std::move(out), {});
}

bool matches(const Route& route, std::string_view path, std::string& rest) {
  if (!route.path.ends_with('*')) return route.path == path;
  const std::string_view stem = route.path.substr(0, route.path.size() - 1);
  if (!path.starts_with(stem) || path.size() == stem.size()) return false;
  rest = std::string(path.substr(stem.size()));
  return true;
}

struct Found {
  const Endpoint* endpoint = nullptr;
  std::string rest, allowed;
};

Found find_endpoint(std::string_view method, std::string_view path) {
  Found out;
  if (method == "HEAD") method = "GET";
  for (const Endpoint* e : endpoints_table())
    for (const Route& route : e->routes) {
      if (route.method.empty() || !matches(route, path, out.rest)) continue;
      if (route.method == method) {
        out.endpoint = e;
        return out;
      }
      out.allowed.append(out.allowed.empty() ? "" : ", ").append(route.method);
    }
  return out;
}

std::unique_ptr<http::Exchange> dispatch(const std::shared_ptr<Context>& context, http::Request&& request, std::string id) {
  if (request.method == "OPTIONS") return preflight(*context, request);
  Found found = find_endpoint(request.method, request.path);
  const bool is_public = found.endpoint && found.endpoint->is_public;
  const ApiKey* key = find_key(context->options.api_keys, request);
  if (!is_public && !context->options.api_keys.empty() && !key)
    return error_reply({ErrorCode::kUnauthenticated, "a valid API key is required: send Authorization: Bearer KEY", {}},
                       context->front());
  if (!found.endpoint && !found.allowed.empty()) {
    const Error error{ErrorCode::kMethodNotAllowed, request.method + " is not allowed here, only " + found.allowed, {}};
    return http::immediate(405, {{"Content-Type", "application/json"}, {"Allow", found.allowed}}, error_text(error));
  }
  if (!found.endpoint)
    return error_reply({ErrorCode::kNotFound, "unknown URL: " + request.method + " " + request.path.substr(0, 200), {}},
                       context->front());
  return found.endpoint->handle({context, std::move(request), std::move(id), std::move(found.rest), key});
}

}  // namespace

const Endpoint* batch_endpoint(std::string_view url) {
  for (const Endpoint* e : endpoints_table())
    for (const Route& route : e->routes)
      if (e->in_batches && route.method == "POST" && route.path == url) return e;
  return nullptr;
}

std::string fresh_request_id() {
  thread_local std::mt19937_64 rng{std::random_device{}() ^ (uint64_t{std::random_device{}()} << 32)};
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (int half = 0; half < 2; ++half) {
    uint64_t bits = rng();
    for (int i = 0; i < 16; ++i, bits >>= 4) out += kHex[bits & 15];
  }
  return out;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::shared_ptr<Context> make_context(ServiceOptions options, ServedModel model, std::vector<Pool> pools) {
  SLUICE_CHECK(!pools.empty());
  auto out = std::make_shared<Context>();
  out->options = std::move(options);
  out->model = std::move(model);
  out->pools = std::move(pools);
  for (const Pool& p : out->pools) out->model.aliases.insert(out->model.aliases.end(), p.aliases.begin(), p.aliases.end());
  const auto& tokenizer = *out->model.tokenizer;
  for (int id = 0; id < tokenizer.size(); ++id)
    out->max_token_bytes = std::max({out->max_token_bytes, tokenizer.token_bytes(id, true).size(), tokenizer.token_text(id).size()});
  return out;
}

std::unique_ptr<http::Exchange> loading_reply() {
  const Error error{ErrorCode::kUnavailable, "the model is being loaded", {}};
  Json body;
  body["status"] = "unavailable";
  body["reason"] = "loading";
  body["error"] = error_object(error);
  return http::immediate(503, {{"Content-Type", "application/json"}, {"Retry-After", "1"}}, dump(body));
}

Service::Service(ServiceOptions options, ServedModel model, std::vector<Pool> pools)
    : context_(make_context(std::move(options), std::move(model), std::move(pools))) {}
Service::~Service() = default;

void Service::attach_store(std::unique_ptr<store::JobStore> store, BatchOptions options) {
  jobs_ = std::make_unique<Jobs>(context_, std::move(store), options);
  context_->jobs = jobs_.get();
}

std::unique_ptr<http::Exchange> Service::handle(http::Request&& request) {
  std::string id = request_id(request);
  http::Headers headers = common_headers(context_->options, id);
  std::unique_ptr<http::Exchange> exchange;
  try {
    exchange = dispatch(context_, std::move(request), std::move(id));
  } catch (const std::exception& e) {  // a bug, or memory: the request fails, the server does not
    exchange = error_reply({ErrorCode::kInternal, "the request could not be handled", {}}, context_->front());
  }
  return std::make_unique<Decorated>(std::move(exchange), std::move(headers));
}

void Service::drain() {
  context_->draining = true;   // ends the runner of batches too
  for (const Pool& p : context_->pools) p.engine->drain();
}

}  // namespace sluice::api
