#include "api/generation_exchange.h"

#include "api/choice.h"
#include "api/event_queue.h"
#include "api/reply.h"
#include "api/reply_format.h"

namespace sluice::api {
namespace {

class GenerationExchange final : public http::Exchange {
 public:
  GenerationExchange(std::shared_ptr<Context> context, Generation&& generation, ReplyInfo info);
  ~GenerationExchange() override;
  Status submit();

  void start(std::function<void()> wake) override { queue_->set_wake(std::move(wake)); }
  http::Poll poll() override;
  void abandon() noexcept override { cancel(); }

 private:
  // One submission's side of the reply.
  struct Run {
    std::shared_ptr<std::atomic<bool>> cancelled;
    std::vector<sample::SampledToken> prompt_news;
    int prompt_choice = -1;          // the choice that told the prompt's logprobs: they come once
    int32_t cached_tokens = 0;
  };

  void cancel() noexcept;
  void answer_locally(size_t prompt);
  void take_event(size_t prompt, sched::TokenEvent&& event, http::Poll& out);
  void begin_stream(http::Poll& out);
  void fail(Error error, http::Poll& out);
  void finish(http::Poll& out);

  std::shared_ptr<Context> context_;
  Generation request_;
  std::unique_ptr<ReplyFormat> format_;
  std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>();
  std::vector<Run> runs_;
  std::vector<Choice> choices_;      // prompt * n + k
  size_t unfinished_ = 0;
  Usage usage_;
  bool head_sent_ = false, done_ = false;
};

GenerationExchange::GenerationExchange(std::shared_ptr<Context> context, Generation&& generation, ReplyInfo info)
    : context_(std::move(context)), request_(std::move(generation)) {
  const auto& tokenizer = context_->model.tokenizer;
  format_ = request_.kind == ReplyKind::kChat ? chat_format(std::move(info), tokenizer) : completion_format(std::move(info), tokenizer);
  runs_.resize(request_.prompts.size());
  choices_.resize(runs_.size() * size_t(request_.submission.n));
  for (size_t i = 0; i < choices_.size(); ++i) choices_[i].index = int(i);
  unfinished_ = choices_.size();
  for (const Prompt& p : request_.prompts) usage_.prompt_tokens += int64_t(p.ids.size());
  ++context_->in_flight;
}

GenerationExchange::~GenerationExchange() {
  cancel();
  --context_->in_flight;
}

Status GenerationExchange::submit() {
  const TimeUs now = SteadyClock().now_us();
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (request_.submission.max_tokens == 0 && request_.submission.prompt_logprobs < 0) {
      answer_locally(i);
      continue;
    }
    sched::Submission s = request_.submission;
    s.prompt = request_.prompts[i].ids;
    s.sink = sink_into(queue_, i);
    s.cancelled = runs_[i].cancelled = std::make_shared<std::atomic<bool>>(false);
    s.arrived_us = now;
    if (Status status = request_.pool->engine->submit(std::move(s)); !status.ok()) {
      runs_[i].cancelled.reset();  // the engine never had it
      cancel();
      return status;
    }
  }
  return {};
}

// Nothing to generate and nothing to score: the engine need not see it.
void GenerationExchange::answer_locally(size_t prompt) {
  for (int k = 0; k < request_.submission.n; ++k) {
    sched::TokenEvent end;
    end.choice = k;
    end.finish = sched::FinishReason::kLength;
    queue_->push(prompt, std::move(end));
  }
}

void GenerationExchange::cancel() noexcept {
  queue_->close();
  if (done_) return;
  done_ = true;
  bool any = false;
  for (Run& run : runs_)
    if (run.cancelled) {
      run.cancelled->store(true, std::memory_order_release);
      any = true;
    }
  if (any) request_.pool->engine->poke();
}

http::Poll GenerationExchange::poll() {
  http::Poll out;
  if (done_) return out;
  for (auto& [prompt, event] : queue_->take()) {
    take_event(prompt, std::move(event), out);
    if (done_) return out;
  }
  return out;
}

void GenerationExchange::take_event(size_t prompt, sched::TokenEvent&& event, http::Poll& out) {
  if (event.finish == sched::FinishReason::kError) return fail(std::move(event.error), out);
  if (event.finish == sched::FinishReason::kCancelled)  // not by us: the engine is going down
    return fail({ErrorCode::kUnavailable, "the request was cancelled by the server", {}}, out);
  Run& run = runs_[prompt];
  const int n = request_.submission.n;
  if (event.choice < 0 || event.choice >= n) return;
  Choice& choice = choices_[prompt * size_t(n) + size_t(event.choice)];
  if (choice.finished()) return;
  if (event.choice == 0 && event.cached_tokens > 0 && run.cached_tokens == 0) run.cached_tokens = event.cached_tokens;
  if (event.is_prompt) {
    if (run.prompt_choice < 0) run.prompt_choice = event.choice;
    if (run.prompt_choice == event.choice && event.has_token) run.prompt_news.push_back(std::move(event.sample));
    if (event.finish == sched::FinishReason::kNone) return;
    event.has_token = false;
  }
  if (!choice.begun && request_.echo)
    choice.put_prompt(request_.prompts[prompt], run.prompt_news, request_.logprobs, *context_->model.tokenizer);
  if (event.has_token) ++usage_.completion_tokens;
  usage_.drafted_tokens += event.drafted;
  usage_.accepted_tokens += event.accepted;
  choice.apply(std::move(event), request_.logprobs, *context_->model.tokenizer);
  if (request_.stream) {
    begin_stream(out);
    if (!choice.text.empty() || choice.finished()) {
      out.body += format_->chunk(choice);
      choice.text.clear();
      choice.news.clear();
    }
  }
  if (choice.finished() && --unfinished_ == 0) finish(out);
}

void GenerationExchange::begin_stream(http::Poll& out) {
  if (head_sent_) return;
  head_sent_ = true;
  out.head = http::Head{200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}, true};
  for (const Choice& c : choices_) out.body += format_->begin(c.index);
}

// Before the first token an error has a status of its own; afterwards it is an event.
void GenerationExchange::fail(Error error, http::Poll& out) {
  if (head_sent_) {
    out.body += "data: " + error_text(error) + "\n\ndata: [DONE]\n\n";
  } else {
    out.head = error_head(error, *request_.pool->engine);
    out.body = error_text(error);
  }
  out.done = true;
  cancel();
}

void GenerationExchange::finish(http::Poll& out) {
  for (const Run& run : runs_) usage_.cached_tokens += run.cached_tokens;
  if (request_.stream) {
    if (request_.include_usage) out.body += format_->usage_chunk(usage_);
    out.body += "data: [DONE]\n\n";
  } else {
    std::vector<Json> scored;
    if (request_.prompt_logprobs >= 0)
      for (size_t i = 0; i < runs_.size(); ++i)
        scored.push_back(format_->prompt_logprobs(request_.prompts[i], runs_[i].prompt_news));
    out.head = http::Head{200, {{"Content-Type", "application/json"}}, false};
    out.body = dump(format_->whole(choices_, usage_, scored));
  }
  out.done = done_ = true;
}

}  // namespace

std::unique_ptr<http::Exchange> generate(Call&& call, Result<Generation>&& read) {
  if (read.ok() && call.in_batch && read->stream) read = invalid("stream must be false in a batch", "stream");
  if (!read.ok()) return error_reply(read.error(), call.context->front());
  Generation& generation = *read;
  ReplyInfo info;
  info.id = (generation.kind == ReplyKind::kChat ? "chatcmpl-" : "cmpl-") + call.request_id;
  info.model = call.context->model.id;
  info.service_tier = generation.service_tier;
  info.created_s = unix_seconds();
  info.include_usage = generation.include_usage;
  info.logprobs = generation.logprobs;
  info.stop_token_ids = generation.submission.stop_token_ids;
  const Pool& pool = *generation.pool;
  auto exchange = std::make_unique<GenerationExchange>(call.context, std::move(generation), std::move(info));
  if (Status status = exchange->submit(); !status.ok()) return error_reply(status.error(), *pool.engine);
  return exchange;
}

}  // namespace sluice::api
