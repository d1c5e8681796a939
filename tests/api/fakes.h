// A scripted engine and a tiny vocabulary, so that API tests need neither a model nor a clock.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/json.h"
#include "api/service.h"

namespace sluice::api::test {

// Byte b is token b; 256.. are specials and longer pieces: 256 <s> (BOS), 257 </s> (EOS), 258 <|im|> (control), 259 "hello",
// 260 and 261 the halves of U+1F600.
class FakeTokenizer final : public text::Tokenizer {
 public:
  explicit FakeTokenizer(bool has_bos = true) : has_bos_(has_bos) {
    for (int i = 0; i < 256; ++i) pieces_.push_back(std::string(1, char(i)));
    for (const char* s : {"<s>", "</s>", "<|im|>", "hello", "\xF0\x9F", "\x98\x80"}) pieces_.push_back(s);
  }
  std::vector<text::TokenId> encode(std::string_view s, const text::EncodeOptions& o) const override {
    std::vector<text::TokenId> out;
    if (o.add_bos && has_bos_) out.push_back(256);
    while (!s.empty()) {
      int id = uint8_t(s[0]);
      if (o.parse_special)
        for (int special : {256, 257, 258})
          if (s.starts_with(pieces_[size_t(special)])) id = special;
      out.push_back(id);
      s.remove_prefix(pieces_[size_t(id)].size());
    }
    return out;
  }
  std::vector<text::TokenId> encode_spans(const std::vector<Span>& spans, bool add_bos) const override {
    std::vector<text::TokenId> out;
    if (add_bos && has_bos_) out.push_back(256);
    for (const auto& span : spans)
      for (auto id : encode(span.text, {.parse_special = span.trusted})) out.push_back(id);
    return out;
  }
  std::string_view token_bytes(text::TokenId id, bool keep_special) const override {
    if (id >= 256 && id <= 258 && !keep_special) return {};
    return pieces_[size_t(id)];
  }
  std::string decode(const std::vector<text::TokenId>& ids, bool keep_special) const override {
    std::string out;
    for (auto id : ids) out += token_bytes(id, keep_special);
    return out;
  }
  int size() const override { return int(pieces_.size()); }
  text::TokenKind kind(text::TokenId id) const override {
    return id >= 256 && id <= 258 ? text::TokenKind::kControl : text::TokenKind::kNormal;
  }
  const std::string& token_text(text::TokenId id) const override { return pieces_[size_t(id)]; }
  text::TokenId bos() const override { return has_bos_ ? 256 : -1; }
  text::TokenId eos() const override { return 257; }
  bool add_bos() const override { return has_bos_; }
  bool strips_leading_space() const override { return false; }
  bool is_end_of_generation(text::TokenId id) const override { return id == 257; }
  const std::vector<text::TokenId>& end_of_generation() const override { return eog_; }

 private:
  bool has_bos_;
  std::vector<std::string> pieces_;
  std::vector<text::TokenId> eog_{257};
};

class FakeEngine final : public EnginePort {
 public:
  Status submit(sched::Submission s) override {
    if (!refusals.empty()) {
      Status status = refusals.front();
      refusals.pop_front();
      if (!status.ok()) return status;
    }
    submissions.push_back(s);
    if (on_submit) on_submit(submissions.back());
    return {};
  }
  void poke() override { ++pokes; }
  const engine::Stats& stats() const override { return stats_; }
  bool healthy(std::string& reason) const override {
    reason = unhealthy;
    return unhealthy.empty();
  }
  void drain() override { drained = true; }
  int64_t kv_tokens() const override { return kv; }
  int retry_after_s() const override { return 7; }

  engine::Stats stats_;
  std::deque<Status> refusals;                 // one a submit, first first
  std::vector<sched::Submission> submissions;
  std::function<void(const sched::Submission&)> on_submit;
  std::string unhealthy;
  int64_t kv = 1 << 20;
  int pokes = 0;
  bool drained = false;
};

inline sched::TokenEvent token(int choice, int id, std::string text, float logprob = -0.5f) {
  sched::TokenEvent e;
  e.choice = choice;
  e.has_token = true;
  e.sample.token = id;
  e.sample.logprob = logprob;
  e.text = std::move(text);
  return e;
}
inline sched::TokenEvent prompt_token(int id, float logprob, std::vector<sample::TokenLogprob> top = {}) {
  sched::TokenEvent e = token(0, id, "", logprob);
  e.is_prompt = true;
  e.sample.top = std::move(top);
  return e;
}
inline sched::TokenEvent end(int choice, sched::FinishReason why = sched::FinishReason::kStop, std::string text = {}) {
  sched::TokenEvent e;
  e.choice = choice;
  e.finish = why;
  e.text = std::move(text);
  return e;
}
inline sched::TokenEvent failure(ErrorCode code, std::string message) {
  sched::TokenEvent e = end(0, sched::FinishReason::kError);
  e.error = {code, std::move(message), {}};
  return e;
}

// A reply as a client would see it.
struct Reply {
  int status = 0;
  http::Headers headers;
  std::string body;
  bool streaming = false, done = false;
  std::string header(std::string_view name) const {
    for (const auto& [k, v] : headers)
      if (k == name) return v;
    return {};
  }
  Json json() const { return Json::parse(body); }
  std::string message() const { return json()["error"]["message"]; }
  // The events of a stream, [DONE] left out (and required).
  std::vector<Json> events() const {
    std::vector<Json> out;
    size_t at = 0;
    for (size_t end; (end = body.find("\n\n", at)) != body.npos; at = end + 2) {
      const std::string line = body.substr(at, end - at);
      if (line == "data: [DONE]") return out;
      out.push_back(Json::parse(line.substr(6)));
    }
    throw std::runtime_error("no [DONE]: " + body);
  }
};

inline void drain_into(http::Exchange& exchange, Reply& reply) {
  for (;;) {
    http::Poll p = exchange.poll();
    if (!p.head && p.body.empty() && !p.done) return;
    if (p.head) {
      reply.status = p.head->status;
      reply.headers = p.head->headers;
      reply.streaming = p.head->streaming;
    }
    reply.body += p.body;
    if (p.done) {
      reply.done = true;
      return;
    }
  }
}

// A Service over the fakes. The template, when there is one, is built by the test (it needs text/).
struct Bench {
  std::shared_ptr<FakeEngine> engine = std::make_shared<FakeEngine>();
  std::unique_ptr<Service> service;

  explicit Bench(ServiceOptions options = {}, bool has_bos = true, int max_context = 1024,
                 std::shared_ptr<const text::ChatTemplate> chat = nullptr) {
    ServedModel model;
    model.id = "tiny";
    model.aliases = {"gpt-x"};
    model.created_s = 1700000000;
    model.max_context = max_context;
    model.tokenizer = std::make_shared<FakeTokenizer>(has_bos);
    model.chat_template = std::move(chat);
    service = std::make_unique<Service>(std::move(options), std::move(model), std::vector<Pool>{{.engine = engine}});
  }
  std::unique_ptr<http::Exchange> open(std::string method, std::string path, std::string body = {}, http::Headers headers = {}) {
    auto e = service->handle({std::move(method), std::move(path), {}, std::move(headers), std::move(body), "127.0.0.1"});
    e->start([] {});
    return e;
  }
  Reply ask(std::string method, std::string path, std::string body = {}, http::Headers headers = {}) {
    auto e = open(std::move(method), std::move(path), std::move(body), std::move(headers));
    Reply out;
    drain_into(*e, out);
    return out;
  }
  Reply post(std::string path, std::string body) { return ask("POST", std::move(path), std::move(body)); }
  // Plays the events on every submission.
  void script(std::vector<sched::TokenEvent> events) {
    engine->on_submit = [events](const sched::Submission& s) {
      for (auto e : events) s.sink->push(std::move(e));
    };
  }
};

}  // namespace sluice::api::test
