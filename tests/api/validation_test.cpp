#include <gtest/gtest.h>

#include <chrono>

#include "tests/api/fakes.h"

namespace sluice::api {
namespace {
using namespace test;

struct Bad {
  const char* fields;      // members besides the prompt
  const char* param;
  const char* in_message;  // the value or limit that must be named
};

const Bad kBad[] = {
    {R"("temperature":2.5)", "temperature", "2.5"},
    {R"("temperature":"hot")", "temperature", "hot"},
    {R"("temperature":-0.1)", "temperature", "-0.1"},
    {R"("top_p":0)", "top_p", "above 0"},
    {R"("top_p":1.01)", "top_p", "1.01"},
    {R"("top_k":-2)", "top_k", "-2"},
    {R"("top_k":1.5)", "top_k", "1.5"},
    {R"("min_p":-1)", "min_p", "-1"},
    {R"("presence_penalty":3)", "presence_penalty", "3"},
    {R"("frequency_penalty":-3)", "frequency_penalty", "-3"},
    {R"("repetition_penalty":0)", "repetition_penalty", "0"},
    {R"("n":0)", "n", "128"},
    {R"("n":129)", "n", "129"},
    {R"("n":99999999999999999999999)", "n", "e+22"},
    {R"("n":true)", "n", "true"},
    {R"("max_tokens":-1)", "max_tokens", "-1"},
    {R"("max_tokens":18446744073709551615)", "max_tokens", "18446744073709551615"},
    {R"("min_tokens":-1)", "min_tokens", "-1"},
    {R"("min_tokens":17)", "min_tokens", "17"},
    {R"("seed":1.5)", "seed", "1.5"},
    {R"("seed":1e300)", "seed", "1e+300"},
    {R"("stop":"")", "stop", "empty"},
    {R"("stop":["a",""])", "stop", "empty"},
    {R"("stop":[1])", "stop", "1"},
    {R"("stop":{})", "stop", "object"},
    {R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop", "16"},
    {R"("stop_token_ids":[262])", "stop_token_ids", "262"},
    {R"("stop_token_ids":[-1])", "stop_token_ids", "-1"},
    {R"("stop_token_ids":7)", "stop_token_ids", "7"},
    {R"("logit_bias":{"262":1})", "logit_bias", "262"},
    {R"("logit_bias":{"-1":1})", "logit_bias", "-1"},
    {R"("logit_bias":{"abc":1})", "logit_bias", "abc"},
    {R"("logit_bias":{"99999999999999999999":1})", "logit_bias", "99999999999999999999"},
    {R"("logit_bias":{"1":101})", "logit_bias", "101"},
    {R"("logit_bias":{"1":"x"})", "logit_bias", "x"},
    {R"("logit_bias":[1])", "logit_bias", "array"},
    {R"("stream":"yes")", "stream", "yes"},
    {R"("stream_options":{"include_usage":true})", "stream_options", "stream"},
    {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage", "1"},
    {R"("stream":true,"stream_options":[])", "stream_options", "array"},
    {R"("ignore_eos":1)", "ignore_eos", "1"},
    {R"("include_stop_str_in_output":"x")", "include_stop_str_in_output", "x"},
    {R"("skip_special_tokens":0)", "skip_special_tokens", "0"},
    {R"("service_tier":"scale")", "service_tier", "scale"},
    {R"("service_tier":5)", "service_tier", "5"},
    {R"("priority":"high")", "priority", "high"},
    {R"("user":5)", "user", "5"},
    {R"("cache_salt":"")", "cache_salt", "empty"},
    {R"("cache_salt":5)", "cache_salt", "5"},
    {R"("prompt_logprobs":21)", "prompt_logprobs", "21"},
    {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "stream"},
    {R"("response_format":{"type":"json_object"})", "response_format", "not supported yet"},
    {R"("response_format":"text")", "response_format", "text"},
    {R"("guided_json":{"a":1})", "guided_json", "not supported"},
};
const Bad kBadCompletion[] = {
    {R"("logprobs":21)", "logprobs", "20"},       {R"("logprobs":true)", "logprobs", "true"},
    {R"("echo":1)", "echo", "1"},                 {R"("best_of":3)", "best_of", "n"},
    {R"("suffix":"x")", "suffix", "supported"},   {R"("add_special_tokens":3)", "add_special_tokens", "3"},
};
const Bad kBadPrompts[] = {
    {R"("prompt":5)", "prompt", "5"},
    {R"("prompt":[])", "prompt", "empty"},
    {R"("prompt":[1,262])", "prompt", "262"},
    {R"("prompt":[1,-5])", "prompt", "-5"},
    {R"("prompt":[1,2.5])", "prompt", "2.5"},
    {R"("prompt":[[1],[99999999999]])", "prompt", "99999999999"},
    {R"("prompt":[{}])", "prompt", "object"},
    {R"("prompt":["a",1])", "prompt", "1"},
    {R"("prompt":null)", "prompt", "required"},
};

void expect_bad(Bench& b, const std::string& body, const Bad& bad) {
  auto r = b.post("/v1/completions", body);
  EXPECT_EQ(r.status, 400) << body << r.body;
  EXPECT_FALSE(r.streaming);
  auto e = r.json()["error"];
  EXPECT_EQ(e["type"], "invalid_request_error");
  EXPECT_EQ(e["param"], bad.param) << r.body;
  EXPECT_NE(r.message().find(bad.in_message), std::string::npos) << r.body;
  EXPECT_TRUE(b.engine->submissions.empty());
}

TEST(Validation, EveryFieldNamesItselfAndItsValue) {
  Bench b;
  for (const Bad& bad : kBad) expect_bad(b, std::string(R"({"prompt":"a",)") + bad.fields + "}", bad);
  for (const Bad& bad : kBadCompletion) expect_bad(b, std::string(R"({"prompt":"a",)") + bad.fields + "}", bad);
  for (const Bad& bad : kBadPrompts) expect_bad(b, std::string("{") + bad.fields + "}", bad);
}

TEST(Validation, NullIsAbsentAndBoundsAreInside) {
  Bench b;
  b.script({end(0)});
  for (const char* good :
       {R"("temperature":null,"n":null,"stop":null,"stop_token_ids":null,"logit_bias":null,"stream":null,"seed":null)",
        R"("temperature":2,"top_p":1,"min_p":1,"presence_penalty":-2,"frequency_penalty":2,"top_k":-1)",
        R"("max_tokens":16.0,"seed":18446744073709551615)", R"("seed":-9223372036854775808)", R"("stop":[])",
        R"("service_tier":"auto")", R"("service_tier":"default","priority":0)", R"("stream_options":null)",
        R"("response_format":{"type":"text"},"tools":[])", R"("logit_bias":{},"best_of":1,"suffix":null)"}) {
    auto r = b.post("/v1/completions", std::string(R"({"prompt":"a",)") + good + "}");
    EXPECT_EQ(r.status, 200) << good << r.body;
  }
}

TEST(Validation, ModelThatIsNotServed) {
  Bench b;
  b.script({end(0)});
  auto r = b.post("/v1/completions", R"({"model":"gpt-9","prompt":"a"})");
  EXPECT_EQ(r.status, 404);
  EXPECT_EQ(r.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(r.json()["error"]["param"], "model");
  EXPECT_NE(r.message().find("gpt-9"), std::string::npos);
  EXPECT_EQ(b.post("/v1/completions", R"({"model":"gpt-x","prompt":"a"})").status, 200);
  EXPECT_EQ(b.post("/v1/completions", R"({"model":7,"prompt":"a"})").status, 400);
}

TEST(Validation, ContextLengthHasBothNumbers) {
  Bench b({}, true, 100);
  auto r = b.post("/v1/completions", R"({"prompt":"0123456789","max_tokens":90})");
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.json()["error"]["code"], "context_length_exceeded");
  for (const char* n : {"100", "101", "11 in the prompt", "90 for the output"})
    EXPECT_NE(r.message().find(n), std::string::npos) << r.body;
  b.script({end(0)});
  EXPECT_EQ(b.post("/v1/completions", R"({"prompt":"0123456789","max_tokens":89})").status, 200);
  auto big = b.post("/v1/completions", R"({"prompt":")" + std::string(1 << 20, 'x') + R"("})");
  EXPECT_EQ(big.json()["error"]["code"], "context_length_exceeded");
  b.engine->refusals = {Error{ErrorCode::kContextLength, "does not fit the cache", {}}};
  EXPECT_EQ(b.post("/v1/completions", R"({"prompt":"a"})").json()["error"]["code"], "context_length_exceeded");
}

TEST(Validation, HostileJson) {
  Bench b;
  const std::string open(100'000, '['), deep = R"({"prompt":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  std::string keys = "{", values = "[1";
  for (int i = 0; i < 60'000; ++i) keys += "\"k" + std::to_string(i) + "\":1,";
  for (int i = 0; i < 2'100'000; ++i) values += ",1";
  const auto began = std::chrono::steady_clock::now();
  for (const std::string& body :
       {open, deep, std::string(), std::string("{"), std::string("[]"), std::string("nul"), std::string("{\"a\":1} x"), std::string("]"),
        std::string("{\"prompt\":\"\xff\xfe\"}"), std::string("{\"prompt\":\"\xc3\"}"), std::string("{\"prompt\":\"\\ud800\"}"),
        std::string("{\"prompt\":\"a\",\"temperature\":1e999}"), std::string("{\"prompt\":\"a\",\"temperature\":NaN}"),
        std::string("{\"prompt\":\"a\",\"n\":Infinity}"), std::string("\0", 1), keys + "\"z\":1}", "{\"prompt\":" + values + "]}"}) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
      auto r = b.post(path, body);
      EXPECT_EQ(r.status, 400) << body.substr(0, 80);
      EXPECT_EQ(r.json()["error"]["type"], "invalid_request_error");
      EXPECT_LT(r.body.size(), 1000u);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  b.script({end(0)});
  EXPECT_EQ(b.post("/v1/completions", R"({"prompt":"a","prompt":"b"})").status, 200);  // duplicate keys
}

}  // namespace
}  // namespace sluice::api
