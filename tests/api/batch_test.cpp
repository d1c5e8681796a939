// Files and batches over a scripted engine and a SQLite store in a temporary file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "api/batch_input.h"
#include "api/endpoint.h"
#include "api/multipart.h"
#include "tests/api/fakes.h"

namespace sluice::api {
namespace {
using namespace test;
using namespace std::chrono_literals;

std::string form(const std::vector<std::pair<std::string, std::string>>& fields, const std::string& file, const std::string& name = "in.jsonl") {
  std::string out;
  for (const auto& [k, v] : fields) out += "--XX\r\nContent-Disposition: form-data; name=\"" + k + "\"\r\n\r\n" + v + "\r\n";
  return out + "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\nContent-Type: application/json\r\n\r\n" + file + "\r\n--XX--\r\n";
}

std::string line(const std::string& id, const std::string& body = R"({"model":"tiny","prompt":"x","max_tokens":4})", const std::string& url = "/v1/completions") {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":")" + url + R"(","body":)" + body + "}\n";
}

class Batches : public ::testing::Test {
 protected:
  Batches() {
    path_ = (std::filesystem::temp_directory_path() / ("sluice_api_" + std::to_string(::getpid()) + ".db")).string();
    remove();
    bench_.script({token(0, 'h', "h"), end(0)});
    attach();
  }
  ~Batches() override {
    bench_.service.reset();
    remove();
  }
  void remove() {
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + end);
  }
  void attach() {
    auto store = store::open_store(path_);
    ASSERT_TRUE(store.ok()) << store.error().message;
    bench_.service->attach_store(std::move(*store), {.concurrency = 4, .poll_us = 5'000});
  }
  Reply ask(const std::string& method, const std::string& path, std::string body = {}, http::Headers headers = {}, const std::string& query = {}) {
    auto e = bench_.service->handle({method, path, query, std::move(headers), std::move(body), "127.0.0.1"});
    e->start([] {});
    Reply out;
    for (int i = 0; i < 5000 && !out.done; ++i) {
      drain_into(*e, out);
      if (!out.done) std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(out.done) << method << " " << path;
    return out;
  }
  Reply upload(const std::string& body) { return ask("POST", "/v1/files", body, {{"content-type", "multipart/form-data; boundary=XX"}}); }
  std::string file(const std::string& content) {
    const auto r = upload(form({{"purpose", "batch"}}, content));
    EXPECT_EQ(r.status, 200) << r.body;
    return r.json()["id"];
  }
  Json create(const std::string& content, const std::string& window = "24h") {
    Json body;
    body["input_file_id"] = file(content);
    body["endpoint"] = "/v1/completions";
    body["completion_window"] = window;
    const auto r = ask("POST", "/v1/batches", body.dump());
    EXPECT_EQ(r.status, 200) << r.body;
    return r.json();
  }
  Json wait_for(const std::string& id, const std::string& status) {
    Json job;
    for (int i = 0; i < 3000; ++i, std::this_thread::sleep_for(2ms)) {
      job = ask("GET", "/v1/batches/" + id).json();
      if (job["status"] == status) return job;
    }
    ADD_FAILURE() << "still " << job.dump();
    return job;
  }
  std::vector<Json> results(const Json& file_id) {
    std::vector<Json> out;
    if (!file_id.is_string()) return out;
    const std::string text = ask("GET", "/v1/files/" + file_id.get<std::string>() + "/content").body;
    for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) out.push_back(Json::parse(text.substr(at, end - at)));
    return out;
  }

  Bench bench_;
  std::string path_;
};

TEST_F(Batches, FilesAreKept) {
  const std::string content = line("a");
  const std::string id = file(content);
  const auto one = ask("GET", "/v1/files/" + id).json();
  EXPECT_EQ(one["object"], "file");
  EXPECT_EQ(one["bytes"], content.size());
  EXPECT_EQ(one["filename"], "in.jsonl");
  EXPECT_EQ(one["purpose"], "batch");
  EXPECT_EQ(one["expires_at"].get<int64_t>() - one["created_at"].get<int64_t>(), 2'592'000);
  EXPECT_EQ(ask("GET", "/v1/files/" + id + "/content").body, content);
  const std::string second = file("");
  EXPECT_EQ(ask("GET", "/v1/files/" + second + "/content").body, "");
  auto page = ask("GET", "/v1/files", {}, {}, "limit=1").json();
  EXPECT_EQ(page["data"].size(), 1u);
  EXPECT_EQ(page["first_id"], second);
  EXPECT_EQ(page["has_more"], true);
  page = ask("GET", "/v1/files", {}, {}, "limit=1&after=" + second + "&purpose=batch").json();
  EXPECT_EQ(page["last_id"], id);
  EXPECT_EQ(page["has_more"], false);
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id).json()["deleted"], true);
  for (const char* path : {"", "/content"}) EXPECT_EQ(ask("GET", "/v1/files/" + id + path).status, 404);
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id).status, 404);
}

TEST_F(Batches, BadUploadsAreRefused) {
  const struct { std::string body, words; } cases[] = {
      {form({}, "x"), "purpose"},
      {form({{"purpose", "vision"}}, "x"), "vision"},
      {form({{"purpose", "batch"}, {"expires_after[seconds]", "10"}}, "x"), "3600"},
      {form({{"purpose", "batch"}, {"expires_after[anchor]", "later"}}, "x"), "created_at"},
      {form({{"purpose", "batch"}}, "x", ""), "name"},
      {form({{"purpose", "batch"}}, "x", std::string(300, 'n')), "255"},
      {form({{"purpose", "batch"}}, "x", "\xff"), "UTF-8"},
      {"--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--XX--\r\n", "file is required"},
      {"--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nbatch", "last boundary"},
      {"nothing", "boundary"},
      {"", "boundary"},
  };
  for (const auto& c : cases) {
    const auto r = upload(c.body);
    EXPECT_EQ(r.status, 400) << r.body;
    EXPECT_NE(r.message().find(c.words), std::string::npos) << r.body;
  }
  EXPECT_EQ(ask("POST", "/v1/files", "{}", {{"content-type", "application/json"}}).status, 400);
  for (const char* query : {"limit=0", "limit=10001", "limit=x", "order=up"}) EXPECT_EQ(ask("GET", "/v1/files", {}, {}, query).status, 400) << query;
  EXPECT_EQ(ask("GET", "/v1/files", {}, {}, "after=file-x").status, 404);
}

TEST_F(Batches, ABatchRunsAsBatchWork) {
  const Json made = create(line("a") + line("b", R"({"prompt":"x","temperature":9})") + "\n" + line("c"));
  EXPECT_EQ(made["object"], "batch");
  const Json job = wait_for(made["id"], "completed");
  EXPECT_EQ(job["request_counts"], (Json{{"total", 3}, {"completed", 2}, {"failed", 1}}));
  EXPECT_EQ(job["usage"]["output_tokens"], 2);
  EXPECT_TRUE(job["errors"].is_null());
  const auto ok = results(job["output_file_id"]), bad = results(job["error_file_id"]);
  ASSERT_EQ(ok.size(), 2u);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(ok[0]["custom_id"], "a");
  EXPECT_EQ(ok[0]["response"]["status_code"], 200);
  EXPECT_EQ(ok[0]["response"]["body"]["choices"][0]["text"], "h");
  EXPECT_TRUE(ok[0]["error"].is_null());
  EXPECT_TRUE(ok[0]["id"].get<std::string>().starts_with("batch_req_"));
  EXPECT_EQ(bad[0]["custom_id"], "b");
  EXPECT_EQ(bad[0]["response"]["status_code"], 400);
  EXPECT_EQ(bad[0]["response"]["body"]["error"]["param"], "temperature");
  for (const auto& s : bench_.engine->submissions) EXPECT_EQ(s.request_class, sched::RequestClass::kBatch);
  const auto page = ask("GET", "/v1/batches", {}, {}, "limit=1").json();
  EXPECT_EQ(page["data"][0]["id"], made["id"]);
  EXPECT_EQ(ask("POST", "/v1/batches/" + made["id"].get<std::string>() + "/cancel").status, 400);
}

TEST_F(Batches, LinesThatStreamAreRefused) {
  const Json job = wait_for(create(line("a", R"({"prompt":"x","stream":true})"))["id"], "completed");
  EXPECT_EQ(results(job["error_file_id"])[0]["response"]["body"]["error"]["param"], "stream");
}

TEST_F(Batches, ARefusalOfTheEngineIsTriedAgain) {
  bench_.engine->refusals = {Error{ErrorCode::kOverloaded, "full", {}}, Error{ErrorCode::kUnavailable, "not yet", {}}};
  const Json job = wait_for(create(line("a") + line("b"))["id"], "completed");
  EXPECT_EQ(job["request_counts"]["completed"], 2);
}

TEST_F(Batches, BadInputFailsTheBatch) {
  const struct { std::string content; const char* code; } cases[] = {
      {"", "empty_file"},
      {"not json\n", "invalid_json_line"},
      {line("a") + line("a"), "duplicate_custom_id"},
      {line("a", "{}", "/v1/chat/completions"), "invalid_url"},
      {line("a", R"({"model":"none"})"), "model_not_found"},
      {line("a", R"({"model":"gpt-x"})") + line("b"), "mismatched_model"},
      {line("a", "[]"), "missing_body"},
      {line(""), "missing_custom_id"},
      {line("a\\u0000b"), "missing_custom_id"},
      {line(std::string(513, 'a')), "invalid_request"},
      {R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})", "invalid_method"},
  };
  for (const auto& c : cases) {
    const Json job = wait_for(create(c.content)["id"], "failed");
    EXPECT_EQ(job["errors"]["data"][0]["code"], c.code) << job.dump();
    EXPECT_EQ(job["request_counts"]["total"], 0);
    EXPECT_GT(job["failed_at"], 0);
  }
}

TEST_F(Batches, BadRequestsForBatchesAreRefused) {
  const std::string id = file(line("a"));
  const auto with = [&](const char* field, Json value) {
    Json body{{"input_file_id", id}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
    body[field] = std::move(value);
    return ask("POST", "/v1/batches", body.dump());
  };
  EXPECT_EQ(with("input_file_id", "file-none").status, 404);
  EXPECT_EQ(with("input_file_id", nullptr).status, 400);
  for (const char* url : {"/v1/embeddings", "/v1/files", "/tokenize", ""}) EXPECT_EQ(with("endpoint", url).status, 400) << url;
  for (const char* window : {"", "24", "h", "0h", "31d", "-1h", "24hh", "99999999999999999999h"}) EXPECT_EQ(with("completion_window", window).status, 400) << window;
  EXPECT_EQ(with("metadata", Json::parse(R"({"k":5})")).status, 400);
  EXPECT_EQ(with("metadata", Json::parse("{\"k\":\"" + std::string(513, 'v') + "\"}")).status, 400);
  EXPECT_EQ(with("output_expires_after", Json::parse(R"({"seconds":5})")).json()["error"]["param"], "output_expires_after.seconds");
  EXPECT_EQ(with("metadata", Json::parse(R"({"k":"v"})")).json()["metadata"]["k"], "v");
  EXPECT_EQ(ask("GET", "/v1/batches/batch_none").status, 404);
  EXPECT_EQ(ask("POST", "/v1/batches/batch_none/cancel").status, 404);
  EXPECT_EQ(ask("POST", "/v1/batches/batch_none/other").status, 404);
  EXPECT_EQ(ask("GET", "/v1/batches", {}, {}, "limit=101").status, 400);
}

// The engine never ends anything: what runs is given up.
TEST_F(Batches, CancelAndExpiryGiveUpWhatRuns) {
  std::mutex mutex;
  std::vector<std::shared_ptr<std::atomic<bool>>> flags;
  bench_.engine->on_submit = [&](const sched::Submission& s) {
    std::lock_guard lock(mutex);
    flags.push_back(s.cancelled);
  };
  std::string content;
  for (int i = 0; i < 6; ++i) content += line(std::to_string(i));
  const std::string id = create(content)["id"];
  wait_for(id, "in_progress");
  for (int i = 0; i < 1000 && [&] { std::lock_guard lock(mutex); return flags.size() < 4; }(); ++i) std::this_thread::sleep_for(2ms);
  EXPECT_EQ(ask("POST", "/v1/batches/" + id + "/cancel").json()["status"], "cancelling");
  const Json cancelled = wait_for(id, "cancelled");
  EXPECT_GT(cancelled["cancelled_at"], 0);
  auto lines = results(cancelled["error_file_id"]);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["error"]["code"], "batch_cancelled");
  EXPECT_TRUE(lines[0]["response"].is_null());
  std::this_thread::sleep_for(20ms);
  {
    std::lock_guard lock(mutex);
    EXPECT_EQ(flags.size(), 4u);
    for (const auto& flag : flags) EXPECT_TRUE(flag->load());
  }
  const Json expired = wait_for(create(content, "1s")["id"], "expired");
  EXPECT_EQ(results(expired["error_file_id"])[5]["error"]["code"], "batch_expired");
}

TEST_F(Batches, AnotherServiceGoesOn) {
  bench_.engine->on_submit = {};   // nothing ends
  const std::string id = create(line("a") + line("b"))["id"];
  wait_for(id, "in_progress");
  bench_.service.reset();
  Bench next;
  next.script({token(0, 'h', "h"), end(0)});
  std::swap(bench_.engine, next.engine);
  std::swap(bench_.service, next.service);
  attach();
  EXPECT_EQ(wait_for(id, "completed")["request_counts"]["completed"], 2);
}

TEST(NoStore, SaysSo) {
  Bench b;
  for (const char* path : {"/v1/files", "/v1/batches", "/v1/files/file-x"}) {
    const auto r = b.ask("GET", path);
    EXPECT_EQ(r.status, 400);
    EXPECT_NE(r.message().find("--store"), std::string::npos);
  }
}

TEST(Multipart, Parts) {
  const auto parts = parse_multipart("multipart/form-data; charset=utf-8; boundary=\"a b\"",
                                     "preamble\r\n--a b\r\ncontent-disposition: form-data; filename=\"x;\\\"y\"; name=one\r\n\r\n1\r\n--a b \r\n"
                                     "Content-Disposition: form-data; name=\"two\"\r\nX: y\r\n\r\n\r\n--a\r\n--a b--epilogue");
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].name, "one");
  EXPECT_EQ((*parts)[0].filename, "x;\"y");
  EXPECT_EQ((*parts)[0].content, "1");
  EXPECT_EQ((*parts)[1].content, "\r\n--a");
  std::string many;
  for (size_t i = 0; i <= kMaxParts; ++i) many += "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n";
  const std::string type = "multipart/form-data; boundary=b";
  EXPECT_FALSE(parse_multipart(type, many + "--b--").ok());
  EXPECT_FALSE(parse_multipart(type, "--b\r\n\r\n\r\n--b--").ok());
  EXPECT_FALSE(parse_multipart(type, "--b\r\n" + std::string(20'000, 'x') + "\r\n\r\n\r\n--b--").ok());
  EXPECT_FALSE(parse_multipart("multipart/form-data", "--b--").ok());
  EXPECT_FALSE(parse_multipart("multipart/form-data; boundary=" + std::string(71, 'b'), "--b--").ok());
  EXPECT_TRUE(parse_multipart(type, "--b--").ok());
}

TEST(BatchInput, CutAnywhereItIsTheSame) {
  ServedModel model;
  model.id = "tiny";
  std::string text;
  for (int i = 0; i < 20; ++i) text += line("id-" + std::to_string(i));
  text.pop_back();   // the last line needs no end
  for (size_t step : {size_t(1), size_t(7), text.size()}) {
    BatchInput input("/v1/completions", model);
    for (size_t at = 0; at < text.size(); at += step) input.add(std::string_view(text).substr(at, step));
    input.end();
    EXPECT_TRUE(input.problems().empty());
    ASSERT_EQ(input.lines().size(), 20u);
    EXPECT_EQ(input.lines()[19].custom_id, "id-19");
  }
  BatchInput few("/v1/completions", model, 3);
  few.add(text);
  few.end();
  EXPECT_EQ(few.problems()[0].code, "too_many_requests");
  BatchInput longs("/v1/completions", model);
  for (size_t i = 0; i <= kMaxBatchLineBytes / 1000; ++i) longs.add(std::string(1000, ' '));
  longs.add("\n" + text);
  longs.end();
  ASSERT_EQ(longs.problems().size(), 1u);
  EXPECT_EQ(longs.problems()[0].code, "line_too_long");
  EXPECT_EQ(longs.problems()[0].line, 1);
}

}  // namespace
}  // namespace sluice::api
