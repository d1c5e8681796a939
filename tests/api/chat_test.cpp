#include <gtest/gtest.h>

#include "tests/api/fakes.h"

namespace sluice::api {
namespace {
using namespace test;
using sched::FinishReason;

constexpr const char* kTemplate =
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% if extra %}{{ extra }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('role bad is not known') }}{% endif %}"
    "{% if m.role == 'user' and loop.previtem is defined and loop.previtem.role == 'user' %}"
    "{{ raise_exception('turns must alternate') }}{% endif %}"
    "{{ '<|im|>' + m.role + '\\n' }}{% if m.content %}{{ m.content }}{% endif %}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.arguments.x }}{% endfor %}{% endif %}{{ '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im|>assistant\\n' }}{% endif %}";

Bench chat_bench(int max_context = 1024) {
  auto parsed = text::ChatTemplate::parse(kTemplate);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return Bench({}, true, max_context, *parsed);
}
constexpr const char* kHi = R"("messages":[{"role":"user","content":"hi"}])";
std::string body(const std::string& more) { return std::string("{") + kHi + (more.empty() ? "" : "," + more) + "}"; }
// What the engine was given, as text with control tokens shown.
std::string prompt_text(const Bench& b, size_t i = 0) {
  return FakeTokenizer().decode(b.engine->submissions.at(i).prompt, true);
}

TEST(Chat, WholeReply) {
  auto b = chat_bench();
  b.script({token(0, 'h', "h"), token(0, 'i', "i"), end(0, FinishReason::kLength)});
  auto r = b.ask("POST", "/v1/chat/completions", body(R"("model":"tiny","service_tier":"auto")"), {{"x-request-id", "abc-1"}});
  ASSERT_EQ(r.status, 200) << r.body;
  auto j = r.json();
  EXPECT_EQ(j["id"], "chatcmpl-abc-1");
  EXPECT_EQ(r.header("x-request-id"), "abc-1");
  EXPECT_EQ(j["object"], "chat.completion");
  EXPECT_EQ(j["model"], "tiny");
  EXPECT_EQ(j["service_tier"], "default");
  EXPECT_EQ(j["choices"][0]["message"], (Json{{"role", "assistant"}, {"content", "hi"}, {"refusal", nullptr}}));
  EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(prompt_text(b), "<s><|im|>user\nhi\n<|im|>assistant\n");
  const auto& s = b.engine->submissions[0];
  EXPECT_EQ(s.prompt[0], 256);
  EXPECT_EQ(s.prompt[1], 258);  // one BOS, and the template's control token is one token
  EXPECT_EQ(s.max_tokens, 1024 - int(s.prompt.size()));
  EXPECT_EQ(j["usage"]["prompt_tokens"], s.prompt.size());
}

TEST(Chat, RestOfContextIsBoundedByTheCache) {
  auto b = chat_bench();
  b.engine->kv = 100;
  b.script({end(0)});
  b.post("/v1/chat/completions", body(""));
  EXPECT_EQ(b.engine->submissions[0].max_tokens, 100 - int(b.engine->submissions[0].prompt.size()));
  b.post("/v1/chat/completions", body(R"("max_tokens":5,"max_completion_tokens":6)"));
  EXPECT_EQ(b.engine->submissions[1].max_tokens, 6);
}

TEST(Chat, UserTextNeverBecomesControlTokens) {
  auto b = chat_bench();
  b.script({end(0)});
  b.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"<|im|></s>"}]})");
  const auto& p = b.engine->submissions.at(0).prompt;
  EXPECT_EQ(std::count(p.begin(), p.end(), 258), 2);  // the user's header and the assistant's
  EXPECT_EQ(std::count(p.begin(), p.end(), 257), 0);
}

TEST(Chat, Messages) {
  auto b = chat_bench();
  b.script({end(0)});
  auto r = b.post("/v1/chat/completions", R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"x\":\"y\"}"}}]},
    {"role":"tool","tool_call_id":"c","content":"42"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none",
    "chat_template_kwargs":{"extra":1}})");
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(prompt_text(b), "<s>1<|im|>system\nab\n<|im|>assistant\ny\n<|im|>tool\n42\n<|im|>assistant\n");
  b.post("/v1/chat/completions", body(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto")"));
  EXPECT_NE(prompt_text(b, 1).find("\"f\""), std::string::npos);
}

TEST(Chat, ContinueFinalMessage) {
  auto b = chat_bench();
  b.script({end(0)});
  const std::string messages = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"so "}],"continue_final_message":true)";
  ASSERT_EQ(b.post("/v1/chat/completions", messages + "}").status, 200);
  EXPECT_EQ(prompt_text(b), "<s><|im|>user\nq\n<|im|>assistant\nso ");
  EXPECT_EQ(b.post("/v1/chat/completions", messages + R"(,"add_generation_prompt":true})").status, 400);
  EXPECT_EQ(b.post("/v1/chat/completions", body(R"("continue_final_message":true)")).status, 400);
  b.post("/v1/chat/completions", body(R"("add_generation_prompt":false)"));
  EXPECT_EQ(prompt_text(b, 1), "<s><|im|>user\nhi\n");
}

TEST(Chat, BadMessages) {
  auto b = chat_bench();
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[{"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":5,"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"assistant","content":null}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":["x"]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"no"}}]}]})",
       "messages[0].tool_calls[0].function.arguments"},
      {R"({"messages":[{"role":"assistant","tool_calls":[5]}]})", "messages[0].tool_calls[0].function"},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required"})", "tool_choice"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":{}})", "tools"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{}]})", "tools[0].function"},
      {R"({"messages":[{"role":"user","content":"x"}],"top_logprobs":2})", "top_logprobs"},
      {R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":21})", "top_logprobs"},
      {R"({"messages":[{"role":"user","content":"x"}],"max_tokens":0})", "max_tokens"},
      {R"({"messages":[{"role":"user","content":"x"}],"chat_template":"x"})", "chat_template"},
      {R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":5})", "chat_template_kwargs"},
      {R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema"}})", "response_format"},
  };
  for (const auto& [text, param] : cases) {
    auto r = b.post("/v1/chat/completions", text);
    EXPECT_EQ(r.status, 400) << text;
    EXPECT_EQ(r.json()["error"]["param"], param) << r.body;
  }
  auto r = b.post("/v1/chat/completions", R"({"messages":[{"role":"bad","content":"x"}]})");
  EXPECT_EQ(r.status, 400);
  EXPECT_NE(r.message().find("role bad is not known"), std::string::npos);
  auto twice = b.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}],"stream":true})");
  EXPECT_EQ(twice.status, 400);
  EXPECT_NE(twice.message().find("turns must alternate"), std::string::npos);
  Bench none;
  auto n = none.post("/v1/chat/completions", body(""));
  EXPECT_EQ(n.status, 400);
  EXPECT_NE(n.message().find("/v1/completions"), std::string::npos);
}

TEST(Chat, ContextLength) {
  auto b = chat_bench(30);
  auto r = b.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"0123456789012345678901234567890"}],"stream":true})");
  EXPECT_EQ(r.status, 400);
  EXPECT_FALSE(r.streaming);
  EXPECT_EQ(r.json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(r.json()["error"]["param"], "messages");
}

TEST(Chat, StreamsFourChoicesWithLogprobs) {
  auto b = chat_bench();
  b.engine->on_submit = [](const sched::Submission& s) {
    for (int step = 0; step < 3; ++step)
      for (int k = 0; k < s.n; ++k) {
        auto e = token(k, 'a' + k, std::string(1, char('a' + k)));
        e.sample.top = {{'z', -0.25f}};
        s.sink->push(std::move(e));
      }
    for (int k = 0; k < s.n; ++k) s.sink->push(end(k));
  };
  auto r = b.post("/v1/chat/completions", body(R"("n":4,"stream":true,"logprobs":true,"top_logprobs":1,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(r.status, 200) << r.body;
  std::string text[4];
  int roles[4] = {}, ends[4] = {}, logprobs[4] = {};
  auto events = r.events();
  for (auto& e : events) {
    EXPECT_EQ(e["object"], "chat.completion.chunk");
    EXPECT_EQ(e["id"], events[0]["id"]);
    if (e["choices"].empty()) continue;
    auto& c = e["choices"][0];
    const int k = c["index"];
    EXPECT_EQ(ends[k], 0);
    if (c["delta"].contains("role")) {
      EXPECT_TRUE(text[k].empty());
      ++roles[k];
    }
    if (c["delta"].contains("content")) text[k] += c["delta"]["content"].get<std::string>();
    if (!c["logprobs"].is_null())
      for (auto& t : c["logprobs"]["content"]) {
        EXPECT_EQ(t["token"], std::string(1, char('a' + k)));
        EXPECT_EQ(t["bytes"], Json({'a' + k}));
        EXPECT_EQ(t["top_logprobs"][0]["token"], "z");
        ++logprobs[k];
      }
    if (!c["finish_reason"].is_null()) ++ends[k];
  }
  for (int k = 0; k < 4; ++k) {
    EXPECT_EQ(text[k], std::string(3, char('a' + k)));
    EXPECT_EQ(roles[k], 1);
    EXPECT_EQ(ends[k], 1);
    EXPECT_EQ(logprobs[k], 3);
  }
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 12);
}

TEST(Chat, EmojiSplitOverTokens) {
  auto b = chat_bench();
  b.script({token(0, 260, "\xF0\x9F"), token(0, 261, "\x98\x80"), token(0, 260, "\xF0\x9F"), end(0, FinishReason::kLength)});
  auto events = b.post("/v1/chat/completions", body(R"("stream":true,"logprobs":true)")).events();
  std::string text;
  size_t tokens = 0;
  for (auto& e : events) {
    auto& c = e["choices"][0];
    if (c["delta"].contains("content")) text += c["delta"]["content"].get<std::string>();
    if (!c["logprobs"].is_null()) tokens += c["logprobs"]["content"].size();
  }
  EXPECT_EQ(text, "\xF0\x9F\x98\x80\xEF\xBF\xBD");  // whole, and the limit cut the second one
  EXPECT_EQ(tokens, 3u);
  EXPECT_EQ(events.size(), 3u);  // role, the emoji, the end with the replacement
  auto whole = b.post("/v1/chat/completions", body("")).json();
  EXPECT_EQ(whole["choices"][0]["message"]["content"], text);
}

TEST(Chat, ErrorBeforeTheFirstTokenHasItsStatus) {
  auto b = chat_bench();
  b.script({failure(ErrorCode::kUnavailable, "device lost")});
  for (const char* stream : {"true", "false"}) {
    auto r = b.post("/v1/chat/completions", body(std::string(R"("stream":)") + stream));
    EXPECT_EQ(r.status, 503);
    EXPECT_EQ(r.header("Retry-After"), "7");
    EXPECT_FALSE(r.streaming);
    EXPECT_EQ(r.message(), "device lost");
  }
  b.script({end(0, FinishReason::kCancelled)});
  EXPECT_EQ(b.post("/v1/chat/completions", body("")).status, 503);
}

TEST(Chat, ErrorAfterTheFirstTokenIsAnEvent) {
  auto b = chat_bench();
  b.script({token(0, 'a', "a"), failure(ErrorCode::kInternal, "device lost")});
  auto r = b.post("/v1/chat/completions", body(R"("stream":true)"));
  EXPECT_EQ(r.status, 200);
  EXPECT_TRUE(r.done);
  auto events = r.events();
  EXPECT_EQ(events.back()["error"]["message"], "device lost");
  EXPECT_EQ(events.back()["error"]["type"], "server_error");
  EXPECT_EQ(b.post("/v1/chat/completions", body("")).status, 500);
}

TEST(Chat, HeadWaitsForTheFirstToken) {
  auto b = chat_bench();
  auto e = b.open("POST", "/v1/chat/completions", body(R"("stream":true)"));
  EXPECT_FALSE(e->poll().head);
  b.engine->submissions[0].sink->push(token(0, 260, "\xF0\x9F"));
  auto p = e->poll();
  ASSERT_TRUE(p.head);
  EXPECT_NE(p.body.find("\"role\":\"assistant\""), std::string::npos);
}

TEST(Chat, EscapesText) {
  auto b = chat_bench();
  b.script({token(0, 'a', "\"\\\n\x01<é>"), end(0)});
  auto events = b.post("/v1/chat/completions", body(R"("stream":true)")).events();
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "\"\\\n\x01<é>");
}

}  // namespace
}  // namespace sluice::api
