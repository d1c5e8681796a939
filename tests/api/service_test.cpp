#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/api/fakes.h"

namespace sluice::api {
namespace {
using namespace test;

TEST(Service, RoutesAndMethods) {
  Bench b;
  auto missing = b.ask("GET", "/nope\xff");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.json()["error"]["type"], "invalid_request_error");
  auto wrong = b.ask("GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("Allow"), "POST");
  EXPECT_EQ(b.ask("HEAD", "/health").status, 200);
  EXPECT_EQ(b.ask("DELETE", "/health").status, 405);
}

TEST(Service, Models) {
  Bench b;
  auto j = b.ask("GET", "/v1/models").json();
  EXPECT_EQ(j["object"], "list");
  EXPECT_EQ(j["data"][0]["id"], "tiny");
  EXPECT_EQ(j["data"][0]["max_model_len"], 1024);
  EXPECT_EQ(j["data"][1]["id"], "gpt-x");
  EXPECT_EQ(b.ask("GET", "/v1/models/tiny").json()["object"], "model");
  auto r = b.ask("GET", "/v1/models/org/name");
  EXPECT_EQ(r.status, 404);
  EXPECT_EQ(r.json()["error"]["code"], "model_not_found");
}

TEST(Service, HealthTellsWhy) {
  Bench b;
  for (const char* path : {"/health", "/v1/health", "/ping"}) EXPECT_EQ(b.ask("GET", path).body, R"({"status":"ok"})");
  b.engine->unhealthy = "watchdog: no step for 31 s";
  auto r = b.ask("GET", "/health");
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.json()["reason"], "watchdog: no step for 31 s");
  b.engine->unhealthy.clear();
  b.service->drain();
  EXPECT_TRUE(b.engine->drained);
  EXPECT_EQ(b.ask("GET", "/health").json()["reason"], "draining");
  EXPECT_TRUE(b.ask("GET", "/version").json().contains("version"));
}

TEST(Service, Authentication) {
  ServiceOptions options;
  options.api_keys = {*parse_api_key("secret-1"), *parse_api_key("other,class=batch")};
  Bench b(options);
  for (const char* path : {"/v1/models", "/metrics", "/load", "/nope"}) {
    auto r = b.ask("GET", path);
    EXPECT_EQ(r.status, 401) << path;
    EXPECT_EQ(r.json()["error"]["code"], "invalid_api_key");
    EXPECT_EQ(r.header("WWW-Authenticate"), "Bearer");
  }
  for (const char* bad : {"Bearer secret-2", "Bearer secret-11", "Bearer secret-", "Bearer ", "secret-1", "Basic secret-1"})
    EXPECT_EQ(b.ask("GET", "/v1/models", {}, {{"authorization", bad}}).status, 401) << bad;
  EXPECT_EQ(b.ask("GET", "/v1/models", {}, {{"authorization", "Bearer secret-1"}}).status, 200);
  EXPECT_EQ(b.ask("GET", "/v1/models", {}, {{"authorization", "Bearer other"}}).status, 200);
  EXPECT_EQ(b.ask("GET", "/v1/models", {}, {{"x-api-key", "other"}}).status, 200);
  for (const char* path : {"/health", "/v1/health", "/ping", "/version"}) EXPECT_EQ(b.ask("GET", path).status, 200) << path;
  EXPECT_EQ(b.ask("OPTIONS", "/v1/chat/completions").status, 204);
}

TEST(Service, Cors) {
  Bench b;
  EXPECT_EQ(b.ask("GET", "/health").header("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(b.ask("GET", "/nope").header("Access-Control-Allow-Origin"), "*");
  auto pre = b.ask("OPTIONS", "/v1/completions", {}, {{"access-control-request-headers", "authorization,x-stainless-os"}});
  EXPECT_EQ(pre.status, 204);
  EXPECT_EQ(pre.header("Access-Control-Allow-Headers"), "authorization,x-stainless-os");
  ServiceOptions options;
  options.cors_origin = "";
  Bench off(options);
  EXPECT_EQ(off.ask("GET", "/health").header("Access-Control-Allow-Origin"), "");
  options.cors_origin = "https://a.example";
  Bench one(options);
  EXPECT_EQ(one.ask("GET", "/health").header("Vary"), "Origin");
}

TEST(Service, RequestIds) {
  Bench b;
  EXPECT_EQ(b.ask("GET", "/health", {}, {{"x-request-id", "id_1.a-B"}}).header("x-request-id"), "id_1.a-B");
  std::set<std::string> fresh;
  for (int i = 0; i < 100; ++i) fresh.insert(b.ask("GET", "/health").header("x-request-id"));
  EXPECT_EQ(fresh.size(), 100u);
  for (const std::string& bad : {std::string("a b"), std::string(129, 'x'), std::string("\"")})
    EXPECT_NE(b.ask("GET", "/health", {}, {{"x-request-id", bad}}).header("x-request-id"), bad);
}

TEST(Service, TokenizeBothDialects) {
  Bench b;
  auto v = b.post("/tokenize", R"({"prompt":"a</s>","return_token_strs":true})").json();
  EXPECT_EQ(v["tokens"], (Json{256, 'a', 257}));
  EXPECT_EQ(v["count"], 3);
  EXPECT_EQ(v["max_model_len"], 1024);
  EXPECT_EQ(v["token_strs"][2], "</s>");
  EXPECT_EQ(b.post("/tokenize", R"({"prompt":"a","add_special_tokens":false})").json()["count"], 1);
  EXPECT_EQ(b.post("/tokenize", R"({"content":"a</s>"})").json(), (Json{{"tokens", {'a', 257}}}));
  auto plain = b.post("/tokenize", R"({"content":"</s>","parse_special":false,"add_special":true})").json();
  EXPECT_EQ(plain["tokens"].size(), 5u);
  auto pieces = b.post("/tokenize", R"({"content":"é","with_pieces":true})").json();
  EXPECT_EQ(pieces["tokens"][0]["piece"], Json({0xC3}));
  EXPECT_EQ(b.post("/tokenize", "{}").status, 400);
  EXPECT_EQ(b.post("/tokenize", R"({"prompt":5})").json()["error"]["param"], "prompt");
  auto d = b.post("/detokenize", R"({"tokens":[104,105,260,261]})").json();
  EXPECT_EQ(d["prompt"], "hi\xF0\x9F\x98\x80");
  EXPECT_EQ(d["content"], d["prompt"]);
  EXPECT_EQ(b.post("/detokenize", R"({"tokens":[262]})").status, 400);
  EXPECT_EQ(b.post("/detokenize", R"({"tokens":[260]})").json()["prompt"], "\xEF\xBF\xBD");
}

TEST(Service, MetricsFormat) {
  Bench b;
  b.engine->stats_.prompt_tokens = 12345;
  b.engine->stats_.blocks_total = 10;
  b.engine->stats_.blocks_held = 4;
  b.engine->stats_.waiting = 3;
  b.engine->stats_.kv_key_bytes = 5760;
  b.engine->stats_.time_to_first_token.observe(0.05);
  auto r = b.ask("GET", "/metrics");
  EXPECT_EQ(r.header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line : {"sluice_prompt_tokens_total{model=\"tiny\",pool=\"default\"} 12345\n",
                           "sluice_kv_key_bytes_per_token{model=\"tiny\",pool=\"default\"} 5760\n",
                           "vllm:prompt_tokens_total{model_name=\"tiny\",engine=\"0\"} 12345\n",
                           "vllm:kv_cache_usage_perc{model_name=\"tiny\",engine=\"0\"} 0.4\n",
                           "vllm:gpu_cache_usage_perc{model_name=\"tiny\",engine=\"0\"} 0.4\n",
                           "vllm:num_requests_waiting{model_name=\"tiny\",engine=\"0\"} 3\n",
                           "# TYPE vllm:time_to_first_token_seconds histogram\n",
                           "vllm:time_to_first_token_seconds_bucket{model_name=\"tiny\",engine=\"0\",le=\"+Inf\"} 1\n",
                           "vllm:time_to_first_token_seconds_count{model_name=\"tiny\",engine=\"0\"} 1\n",
                           "vllm:request_success_total{model_name=\"tiny\",engine=\"0\",finished_reason=\"stop\"} 0\n"})
    EXPECT_NE(r.body.find(line), std::string::npos) << line;
  // Every family is declared once and every sample belongs to the family before it.
  std::istringstream lines(r.body);
  std::set<std::string> seen;
  std::string line, family;
  while (std::getline(lines, line)) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(seen.insert(family).second) << family;
    } else if (!line.starts_with("# TYPE ")) {
      EXPECT_TRUE(line.starts_with(family)) << line;
      EXPECT_NE(line.find("} "), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace sluice::api
