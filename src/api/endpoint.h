// Endpoint: one API route group, a file in endpoints/ each; the file name is the registration (see cmake/layers.cmake).
// Handlers run on connection threads, many at once, and keep no state of their own.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "api/api_key.h"
#include "api/engine_port.h"
#include "api/pool.h"
#include "api/service.h"
#include "http/exchange.h"
#include "sched/request.h"

namespace sluice::api {

class Jobs;

// What every call shares. Immutable save the atomics; exchanges keep it alive.
struct Context {
  ServiceOptions options;
  ServedModel model;
  std::vector<Pool> pools;                 // at least one; requests that nothing sends elsewhere go to the first
  size_t max_token_bytes = 4;              // longest token: a text of n bytes has at least n / this tokens
  std::atomic<bool> draining{false};
  std::atomic<int64_t> in_flight{0};       // generation requests that are not answered yet
  Jobs* jobs = nullptr;                    // null: no store. The service's, which outlives every exchange
  const EnginePort& front() const { return *pools.front().engine; }
};

struct Call {
  std::shared_ptr<Context> context;
  http::Request request;
  std::string request_id;                  // [A-Za-z0-9._-], as echoed to the client
  std::string rest;                        // what a route's "*" stood for
  const ApiKey* key = nullptr;             // the caller's; null: none is asked for, or a batch's line
  bool in_batch = false;                   // a line of a batch: the engine takes it as batch work, and it cannot be streamed
};

struct Route {
  std::string_view method;                 // "" ends the list
  std::string_view path;                   // a last "*" matches one or more further characters
};

struct Endpoint {
  std::array<Route, 6> routes;
  bool is_public;                          // answers without a key
  std::unique_ptr<http::Exchange> (*handle)(Call&& call);
  bool in_batches = false;                 // the lines of a batch may ask for it
};

std::span<const Endpoint* const> endpoints_table();
// The endpoint that a batch's lines may name by this URL, or null.
const Endpoint* batch_endpoint(std::string_view url);
// 32 random hexadecimal digits.
std::string fresh_request_id();
int64_t unix_seconds();

constexpr const char* kVersion = "0.1.0";

}  // namespace sluice::api
