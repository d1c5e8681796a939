// Which pool and class a request gets: by its body, a header, its key, the model's name.
#include <gtest/gtest.h>

#include "tests/api/fakes.h"

namespace sluice::api {
namespace {
using namespace test;
using sched::RequestClass;

struct TwoPools {
  std::shared_ptr<FakeEngine> interactive = std::make_shared<FakeEngine>(), batch = std::make_shared<FakeEngine>();
  std::unique_ptr<Service> service;
  TwoPools() {
    ServedModel model;
    model.id = "tiny";
    model.max_context = 1024;
    model.tokenizer = std::make_shared<FakeTokenizer>();
    ServiceOptions options;
    options.queue_timeout_us = 5'000'000;
    for (const char* k : {"plain", "night,class=batch,weight=3", "pinned,pool=batch,name=team"}) options.api_keys.push_back(*parse_api_key(k));
    service = std::make_unique<Service>(options, model, std::vector<Pool>{{"interactive", interactive, {true, false}, {"tiny-fast"}},
                                                                          {"batch", batch, {false, true}, {"tiny-bulk"}}});
    for (auto& e : {interactive, batch})
      e->on_submit = [](const sched::Submission& s) { s.sink->push(end(0)); };
  }
  int post(const std::string& fields, const std::string& key = "plain", http::Headers headers = {}) {
    headers.emplace_back("authorization", "Bearer " + key);
    auto e = service->handle({"POST", "/v1/completions", {}, std::move(headers), R"({"prompt":"hi")" + fields + "}", "127.0.0.1"});
    e->start([] {});
    Reply out;
    drain_into(*e, out);
    body = out.body;
    return out.status;
  }
  // The submission that came last, in the pool that got it; counts of both afterwards.
  const sched::Submission& at(const std::shared_ptr<FakeEngine>& pool) { return pool->submissions.back(); }
  std::string body;
};

TEST(Pools, AreChosenByClass) {
  TwoPools t;
  EXPECT_EQ(t.post(""), 200);
  EXPECT_EQ(t.post(R"(,"service_tier":"flex")"), 200);
  EXPECT_EQ(t.post(R"(,"priority":3)"), 200);
  EXPECT_EQ(t.interactive->submissions.size(), 1u);
  ASSERT_EQ(t.batch->submissions.size(), 2u);
  EXPECT_EQ(t.at(t.batch).request_class, RequestClass::kBatch);
}

TEST(Pools, AreChosenByTheModelsName) {
  TwoPools t;
  EXPECT_EQ(t.post(R"(,"model":"tiny-bulk")"), 200);
  EXPECT_EQ(t.at(t.batch).request_class, RequestClass::kBatch);  // nothing else said a class: the pool's
  EXPECT_EQ(t.post(R"(,"model":"tiny-bulk","service_tier":"default")"), 200);
  EXPECT_EQ(t.at(t.batch).request_class, RequestClass::kInteractive);
  EXPECT_EQ(t.post(R"(,"model":"tiny-fast","service_tier":"flex")"), 200);
  EXPECT_EQ(t.at(t.interactive).request_class, RequestClass::kBatch);
  EXPECT_EQ(t.post(R"(,"model":"tiny-none")"), 404);
}

TEST(Pools, AreChosenByKeyAndHeader) {
  TwoPools t;
  EXPECT_EQ(t.post("", "night"), 200);
  EXPECT_EQ(t.post(R"(,"service_tier":"default")", "night"), 200);  // a batch key asks for nothing better
  EXPECT_EQ(t.batch->submissions.size(), 2u);
  EXPECT_EQ(t.at(t.batch).request_class, RequestClass::kBatch);
  EXPECT_EQ(t.at(t.batch).share_weight, 3);
  EXPECT_EQ(t.post("", "pinned"), 200);
  EXPECT_EQ(t.batch->submissions.size(), 3u);
  EXPECT_EQ(t.at(t.batch).request_class, RequestClass::kInteractive);
  EXPECT_EQ(t.post("", "plain", {{"x-sluice-class", "batch"}}), 200);
  EXPECT_EQ(t.batch->submissions.size(), 4u);
  EXPECT_EQ(t.post("", "plain", {{"x-sluice-class", "soon"}}), 400);
  EXPECT_NE(t.body.find("x-sluice-class"), std::string::npos);
  EXPECT_EQ(t.post("", "wrong"), 401);
}

TEST(Pools, OneThatIsFullLeavesTheOther) {
  TwoPools t;
  t.batch->refusals.push_back(Error{ErrorCode::kOverloaded, "the queue is full", {}});
  EXPECT_EQ(t.post(R"(,"service_tier":"flex")"), 429);
  EXPECT_EQ(t.post(""), 200);
  t.batch->unhealthy = "stuck";
  auto e = t.service->handle({"GET", "/health", {}, {}, {}, "127.0.0.1"});
  e->start([] {});
  Reply out;
  drain_into(*e, out);
  EXPECT_EQ(out.status, 503);
  EXPECT_NE(out.body.find("pool batch: stuck"), std::string::npos) << out.body;
}

TEST(Pools, SharesAreByKeyElseByUser) {
  TwoPools t;
  t.post(R"(,"user":"a")");
  const uint64_t plain = t.at(t.interactive).share_key;
  t.post(R"(,"user":"b")");
  EXPECT_EQ(t.at(t.interactive).share_key, plain);
  t.post("", "pinned");
  EXPECT_NE(t.at(t.batch).share_key, plain);
  Bench open;
  open.post("/v1/completions", R"({"prompt":"x","user":"a"})");
  open.post("/v1/completions", R"({"prompt":"x","user":"b"})");
  EXPECT_NE(open.engine->submissions[0].share_key, open.engine->submissions[1].share_key);
}

TEST(Targets, AreHintsAndTheQueueHasATimeout) {
  TwoPools t;
  EXPECT_EQ(t.post(R"(,"ttft_ms":250,"tpot_ms":12.5)"), 200);
  EXPECT_EQ(t.at(t.interactive).ttft_target_us, 250'000);
  EXPECT_EQ(t.at(t.interactive).tpot_target_us, 12'500);
  EXPECT_EQ(t.at(t.interactive).queue_timeout_us, 5'000'000);
  EXPECT_EQ(t.post(R"(,"queue_timeout_ms":100)"), 200);
  EXPECT_EQ(t.at(t.interactive).queue_timeout_us, 100'000);
  EXPECT_EQ(t.post(R"(,"queue_timeout_ms":100000)"), 200);
  EXPECT_EQ(t.at(t.interactive).queue_timeout_us, 5'000'000);
  EXPECT_EQ(t.post(R"(,"ttft_ms":-1)"), 400);
  EXPECT_EQ(t.post(R"(,"tpot_ms":1e9)"), 400);
}

TEST(ApiKeys, Words) {
  EXPECT_EQ(parse_api_key("abc")->name, "abc");
  EXPECT_EQ(parse_api_key("abc,name=x,weight=2,pool=p,class=interactive")->pool, "p");
  for (const char* bad : {"", ",class=batch", "k,class=night", "k,weight=0", "k,weight=x", "k,size=1", "k,x"}) {
    auto key = parse_api_key(bad);
    ASSERT_FALSE(key.ok()) << bad;
    EXPECT_EQ(key.error().message.find("abc"), std::string::npos);
  }
}

TEST(Loading, EverythingIs503) {
  auto e = loading_reply();
  e->start([] {});
  Reply out;
  drain_into(*e, out);
  EXPECT_EQ(out.status, 503);
  EXPECT_EQ(out.header("Retry-After"), "1");
  EXPECT_EQ(out.json()["reason"], "loading");
}

}  // namespace
}  // namespace sluice::api
