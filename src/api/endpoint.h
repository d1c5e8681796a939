// Endpoint: one API route group, a file in endpoints/ each; the file name is the registration (see cmake/layers.cmake).
// Handlers run on connection threads, many at once, and keep no state of their own.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "api/engine_port.h"
#include "api/service.h"
#include "http/exchange.h"

namespace sluice::api {

// What every call shares. Immutable save the atomics; exchanges keep it alive.
struct Context {
  ServiceOptions options;
  ServedModel model;
  std::shared_ptr<EnginePort> engine;
  size_t max_token_bytes = 4;              // longest token: a text of n bytes has at least n / this tokens
  std::atomic<bool> draining{false};
  std::atomic<int64_t> in_flight{0};       // generation requests that are not answered yet
};

struct Call {
  std::shared_ptr<Context> context;
  http::Request request;
  std::string request_id;                  // [A-Za-z0-9._-], as echoed to the client
  std::string rest;                        // what a route's "*" stood for
};

struct Route {
  std::string_view method;                 // "" ends the list
  std::string_view path;                   // a last "*" matches one or more further characters
};

struct Endpoint {
  std::array<Route, 6> routes;
  bool is_public;                          // answers without a key
  std::unique_ptr<http::Exchange> (*handle)(Call&& call);
};

std::span<const Endpoint* const> endpoints_table();

constexpr const char* kVersion = "0.1.0";

}  // namespace sluice::api
