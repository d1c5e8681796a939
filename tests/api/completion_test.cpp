#include <gtest/gtest.h>

#include "tests/api/fakes.h"

namespace sluice::api {
namespace {
using namespace test;
using sched::FinishReason;

std::vector<sched::TokenEvent> hi() { return {token(0, 'h', "h"), token(0, 'i', "i"), end(0)}; }

TEST(Completion, WholeReply) {
  Bench b;
  auto events = hi();
  events[0].cached_tokens = 2;
  b.script(events);
  auto r = b.post("/v1/completions", R"({"model":"tiny","prompt":"abc","seed":7,"user":"u","unknown":{"x":1},"top_p":null})");
  ASSERT_EQ(r.status, 200) << r.body;
  auto j = r.json();
  EXPECT_EQ(j["object"], "text_completion");
  EXPECT_TRUE(j["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(j["choices"][0]["text"], "hi");
  EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(j["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(j["usage"]["prompt_tokens"], 4);  // BOS a b c
  EXPECT_EQ(j["usage"]["completion_tokens"], 2);
  EXPECT_EQ(j["usage"]["total_tokens"], 6);
  EXPECT_EQ(j["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_FALSE(j.contains("service_tier"));
  const auto& s = b.engine->submissions.at(0);
  EXPECT_EQ(s.prompt, (std::vector<int>{256, 'a', 'b', 'c'}));
  EXPECT_EQ(s.max_tokens, 16);
  EXPECT_EQ(s.sampling.seed, 7u);
  EXPECT_EQ(s.request_class, sched::RequestClass::kInteractive);
}

TEST(Completion, EveryFieldReachesTheSubmission) {
  Bench b;
  b.script(hi());
  auto r = b.post("/v1/completions", R"({"prompt":[5,6],"max_tokens":9,"min_tokens":3,"temperature":0,"top_p":0.5,"top_k":7,
    "min_p":0.25,"repetition_penalty":1.5,"presence_penalty":-1,"frequency_penalty":2,"logit_bias":{"7":-100,"3":1.5},
    "stop":["x","yy"],"include_stop_str_in_output":true,"stop_token_ids":[9],"ignore_eos":true,"skip_special_tokens":false,
    "service_tier":"flex","cache_salt":"s","seed":-1})");
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.json()["service_tier"], "flex");
  const auto& s = b.engine->submissions.at(0);
  EXPECT_EQ(s.prompt, (std::vector<int>{5, 6}));
  EXPECT_EQ(s.max_tokens, 9);
  EXPECT_EQ(s.min_tokens, 3);
  EXPECT_EQ(s.sampling.temperature, 0);
  EXPECT_EQ(s.sampling.top_k, 7);
  EXPECT_FLOAT_EQ(s.sampling.min_p, 0.25f);
  EXPECT_FLOAT_EQ(s.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(s.sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{3, 1.5f}, {7, -100.f}}));
  EXPECT_EQ(s.stop, (std::vector<std::string>{"x", "yy"}));
  EXPECT_TRUE(s.include_stop && s.ignore_eos && s.keep_special);
  EXPECT_EQ(s.stop_token_ids, std::vector<int>{9});
  EXPECT_EQ(s.request_class, sched::RequestClass::kBatch);
  EXPECT_NE(s.cache_salt, 0u);
  EXPECT_EQ(s.sampling.seed, UINT64_MAX);
}

TEST(Completion, ManyPromptsAreManyChoices) {
  for (const char* prompt : {R"(["a","b","c"])", "[[1],[2],[3]]", R"(["a",[2],"c"])"}) {
    Bench b;
    b.engine->on_submit = [&](const sched::Submission& s) {
      for (int k = 1; k >= 0; --k) {
        s.sink->push(token(k, 'x', std::to_string(s.prompt.back() % 16) + "/" + std::to_string(k)));
        s.sink->push(end(k, FinishReason::kLength));
      }
    };
    auto r = b.post("/v1/completions", std::string(R"({"n":2,"add_special_tokens":false,"prompt":)") + prompt + "}");
    ASSERT_EQ(r.status, 200) << r.body;
    auto j = r.json();
    ASSERT_EQ(j["choices"].size(), 6u);
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(j["choices"][i]["index"], i);
      EXPECT_EQ(j["choices"][i]["text"], std::to_string(i / 2 + 1) + "/" + std::to_string(i % 2));
      EXPECT_EQ(j["choices"][i]["finish_reason"], "length");
    }
    EXPECT_EQ(j["usage"]["prompt_tokens"], 3);
    EXPECT_EQ(j["usage"]["completion_tokens"], 6);
  }
}

TEST(Completion, OneRefusedPromptCancelsTheOthers) {
  Bench b;
  b.engine->refusals = {Status{}, Error{ErrorCode::kOverloaded, "the queue is full: 512 wait", {}}};
  auto r = b.post("/v1/completions", R"({"prompt":["a","b","c"],"stream":true})");
  EXPECT_EQ(r.status, 429);
  EXPECT_EQ(r.header("Retry-After"), "7");
  EXPECT_EQ(r.json()["error"]["code"], "rate_limit_exceeded");
  ASSERT_EQ(b.engine->submissions.size(), 1u);
  EXPECT_TRUE(b.engine->submissions[0].cancelled->load());
  EXPECT_EQ(b.engine->pokes, 1);
}

TEST(Completion, LegacyLogprobs) {
  Bench b;
  auto first = token(0, 260, "", -1.f);
  first.sample.top = {{'q', -0.25f}, {260, -1.f}};
  b.script({first, token(0, 261, "\xF0\x9F\x98\x80", -INFINITY), token(0, 'h', "h"), end(0)});
  auto j = b.post("/v1/completions", R"({"prompt":"a","logprobs":2})").json();
  EXPECT_EQ(b.engine->submissions[0].sampling.num_logprobs, 2);
  const auto& lp = j["choices"][0]["logprobs"];
  EXPECT_EQ(lp["tokens"], (Json{"bytes:\\xf0\\x9f", "bytes:\\x98\\x80", "h"}));
  EXPECT_EQ(lp["token_logprobs"], (Json{-1.0, -9999.0, -0.5}));
  EXPECT_EQ(lp["text_offset"], (Json{0, 1, 1}));
  EXPECT_EQ(lp["top_logprobs"][0], (Json{{"q", -0.25}, {"bytes:\\xf0\\x9f", -1.0}}));
  EXPECT_EQ(j["choices"][0]["text"], "\xF0\x9F\x98\x80h");
}

TEST(Completion, EchoWithLogprobs) {
  Bench b;
  b.script({prompt_token('a', -1.f, {{'z', -0.1f}}), prompt_token('b', -2.f), token(0, 'h', "h"), end(0)});
  auto j = b.post("/v1/completions", R"({"prompt":"ab","logprobs":1,"echo":true})").json();
  EXPECT_EQ(b.engine->submissions[0].prompt_logprobs, 1);
  const auto& c = j["choices"][0];
  EXPECT_EQ(c["text"], "abh");
  EXPECT_EQ(c["logprobs"]["tokens"], (Json{"<s>", "a", "b", "h"}));
  EXPECT_EQ(c["logprobs"]["token_logprobs"], (Json{nullptr, -1.0, -2.0, -0.5}));
  EXPECT_EQ(c["logprobs"]["text_offset"], (Json{0, 0, 1, 2}));
  EXPECT_TRUE(c["logprobs"]["top_logprobs"][0].is_null());
  EXPECT_EQ(c["logprobs"]["top_logprobs"][1]["z"].get<float>(), -0.1f);
  EXPECT_EQ(j["usage"]["completion_tokens"], 1);
}

TEST(Completion, EchoWithoutOutput) {
  Bench b;
  auto r = b.post("/v1/completions", R"({"prompt":["ab","c"],"n":2,"echo":true,"max_tokens":0})");
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(b.engine->submissions.size(), 0u);  // nothing to compute
  EXPECT_EQ(r.json()["choices"][1]["text"], "ab");
  EXPECT_EQ(r.json()["choices"][3]["text"], "c");
  EXPECT_EQ(r.json()["choices"][3]["finish_reason"], "length");
  b.script({prompt_token('a', -1.f), end(0, FinishReason::kLength)});
  auto j = b.post("/v1/completions", R"({"prompt":"a","echo":true,"max_tokens":0,"logprobs":0})").json();
  EXPECT_EQ(j["choices"][0]["logprobs"]["token_logprobs"], (Json{nullptr, -1.0}));
  EXPECT_EQ(b.engine->submissions[0].max_tokens, 0);
}

TEST(Completion, EchoStreams) {
  Bench b;
  b.script(hi());
  auto events = b.post("/v1/completions", R"({"prompt":"ab","echo":true,"stream":true})").events();
  std::string text;
  for (auto& e : events) text += e["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, "abhi");
}

TEST(Completion, PromptLogprobs) {
  Bench b;
  b.script({prompt_token(6, -1.f, {{7, -0.5f}}), token(0, 'h', "h"), end(0)});
  auto j = b.post("/v1/completions", R"({"prompt":[65,66],"prompt_logprobs":1})").json();
  const auto& p = j["choices"][0]["prompt_logprobs"];
  EXPECT_TRUE(p[0].is_null());
  EXPECT_EQ(p[1]["66"]["logprob"], -1.0);
  EXPECT_EQ(p[1]["66"]["decoded_token"], "B");
  EXPECT_EQ(p[1]["7"]["logprob"], -0.5);
}

TEST(Completion, Streams) {
  Bench b;
  b.script(hi());
  auto r = b.post("/v1/completions", R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_TRUE(r.streaming && r.done);
  EXPECT_EQ(r.header("Content-Type"), "text/event-stream");
  auto e = r.events();
  ASSERT_EQ(e.size(), 4u);
  EXPECT_EQ(e[0]["choices"][0]["text"], "h");
  EXPECT_TRUE(e[0]["usage"].is_null());
  EXPECT_TRUE(e[0].contains("usage"));
  EXPECT_EQ(e[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(e[3]["choices"].empty());
  EXPECT_EQ(e[3]["usage"]["completion_tokens"], 2);
}

TEST(Completion, EmptyPrompt) {
  Bench with_bos, without({}, false);
  with_bos.script(hi());
  EXPECT_EQ(with_bos.post("/v1/completions", R"({"prompt":"","add_special_tokens":false})").status, 200);
  EXPECT_EQ(with_bos.engine->submissions[0].prompt, std::vector<int>{256});
  auto r = without.post("/v1/completions", R"({"prompt":""})");
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.json()["error"]["param"], "prompt");
}

TEST(Completion, StopReason) {
  Bench b;
  auto stop = end(0);
  stop.stop_string = "END";
  b.script({token(0, 'h', "h"), stop});
  EXPECT_EQ(b.post("/v1/completions", R"({"prompt":"a","stop":"END"})").json()["choices"][0]["stop_reason"], "END");
  auto by_id = end(0);
  by_id.stop_token = 9;
  b.script({token(0, 'h', "h"), by_id});
  EXPECT_EQ(b.post("/v1/completions", R"({"prompt":"a","stop_token_ids":[9]})").json()["choices"][0]["stop_reason"], 9);
  EXPECT_TRUE(b.post("/v1/completions", R"({"prompt":"a"})").json()["choices"][0]["stop_reason"].is_null());
}

TEST(Completion, AbandonCancels) {
  Bench b;
  {
    auto e = b.open("POST", "/v1/completions", R"({"prompt":["a","b"],"stream":true})");
    EXPECT_EQ(b.ask("GET", "/load").json()["server_load"], 1);
    e->abandon();
    EXPECT_EQ(b.engine->pokes, 1);
    for (auto& s : b.engine->submissions) {
      EXPECT_TRUE(s.cancelled->load());
      s.sink->push(token(0, 'x', "x"));  // late news goes nowhere
    }
  }
  EXPECT_EQ(b.engine->pokes, 1);
  EXPECT_EQ(b.ask("GET", "/load").json()["server_load"], 0);
}

TEST(Completion, WakesOncePerEmptyQueue) {
  Bench b;
  auto e = b.service->handle({"POST", "/v1/completions", {}, {}, R"({"prompt":"a"})", ""});
  int wakes = 0;
  e->start([&] { ++wakes; });
  b.engine->submissions[0].sink->push(token(0, 'x', "x"));
  b.engine->submissions[0].sink->push(token(0, 'y', "y"));
  EXPECT_EQ(wakes, 1);
  EXPECT_FALSE(e->poll().done);
  b.engine->submissions[0].sink->push(end(0));
  EXPECT_EQ(wakes, 2);
  auto p = e->poll();
  EXPECT_TRUE(p.done);
  EXPECT_EQ(Json::parse(p.body)["choices"][0]["text"], "xy");
}

}  // namespace
}  // namespace sluice::api
