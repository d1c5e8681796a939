#include "lab/completion.h"

#include <algorithm>
#include <numeric>

#include "text/utf8_stream.h"

namespace sluice::lab {
namespace {

constexpr int kNumTop = 20;

class DiscardSink final : public sched::ResponseSink {
 public:
  void push(sched::TokenEvent&&) noexcept override {}
};

}  // namespace

CompletionRunner::CompletionRunner(LoadedModel& model, std::unique_ptr<exec::DeviceExecutor> executor, std::shared_ptr<draft::Speculator> speculator)
    : model_(model), executor_(std::move(executor)), speculator_(std::move(speculator)), scheduler_(model.scheduler, model.tokenizer) {}
CompletionRunner::~CompletionRunner() = default;

// A pass of its own, so that asking for logits does not change what is sampled after.
void CompletionRunner::score_prompt(const std::vector<int32_t>& prompt, Completion& out) {
  sched::Submission s;
  s.prompt = prompt;
  s.max_tokens = 0;
  s.prompt_logprobs = 0;
  s.sampling.temperature = 0;
  s.sink = std::make_shared<DiscardSink>();
  scheduler_.admit(std::move(s));
  while (!scheduler_.idle()) {
    const sched::BatchPlan& plan = scheduler_.plan(clock_.now_us());
    SLUICE_CHECK(executor_->submit(plan).ok());
    const int last_row = plan.rows.empty() ? -1 : (int(plan.rows.size()) - 1) % executor_->logit_rows();
    const bool ends = !plan.rows.empty() && plan.rows.back().samples;
    sched::StepResult result;
    SLUICE_CHECK(executor_->collect(result).ok());
    for (size_t i = 0; i < result.rows.size(); ++i)
      if (!plan.rows[i].samples) out.nll.push_back(-double(result.rows[i].logprob));
    if (ends) {  // greedy: the sampler left the logits as they were
      const int vocab = model_.scheduler.vocab;
      std::vector<float> logits(static_cast<size_t>(vocab));
      SLUICE_CHECK(executor_->read_logits(last_row, logits.data()).ok());
      std::vector<int32_t> order(static_cast<size_t>(vocab));
      std::iota(order.begin(), order.end(), 0);
      const int k = std::min(kNumTop, vocab);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
      for (int i = 0; i < k; ++i) out.top.emplace_back(order[size_t(i)], logits[order[size_t(i)]]);
    }
    sched::StepOutcome outcome;
    scheduler_.commit(result, clock_.now_us(), 0, outcome);
  }
}

Status CompletionRunner::step(sched::StepResult& result, sched::StepOutcome& outcome) {
  if (speculator_) SLUICE_TRY(speculator_->prepare(scheduler_));
  const TimeUs begin = clock_.now_us();
  SLUICE_TRY(executor_->submit(scheduler_.plan(begin)));
  SLUICE_TRY(executor_->collect(result));
  const TimeUs end = clock_.now_us();
  scheduler_.commit(result, end, end - begin, outcome);
  if (speculator_) speculator_->learn(outcome, end - begin);
  return {};
}

Result<Completion> CompletionRunner::run(sched::Submission s, bool want_logits,
                                         const std::function<bool(std::string_view)>& on_text) {
  SLUICE_TRY(sched::Scheduler::fits(model_.scheduler, int64_t(s.prompt.size()), s.max_tokens));
  Completion out;
  if (want_logits) score_prompt(s.prompt, out);
  s.sink = std::make_shared<DiscardSink>();
  s.cancelled = std::make_shared<std::atomic<bool>>(false);
  auto cancelled = s.cancelled;
  s.arrived_us = clock_.now_us();
  const TimeUs begin = s.arrived_us;
  TimeUs first = 0, last = 0;
  text::Utf8Stream utf8;
  auto emit = [&](const std::string& piece) {
    out.text += piece;
    if (!piece.empty() && on_text && !on_text(piece)) cancelled->store(true);
  };
  scheduler_.admit(std::move(s));
  sched::StepResult result;
  sched::StepOutcome outcome;
  while (!scheduler_.idle()) {
    outcome.clear();
    scheduler_.reap_cancelled(clock_.now_us(), outcome);
    if (speculator_) speculator_->learn(outcome, 0);
    out.decode_steps += !scheduler_.idle() && !out.ids.empty();
    if (!scheduler_.idle()) SLUICE_TRY(step(result, outcome));
    for (const sched::Delivery& d : outcome.deliveries) {
      if (d.event.has_token) {
        last = clock_.now_us();
        if (out.ids.empty()) first = last;
        out.ids.push_back(d.event.sample.token);
      }
      emit(utf8.push(d.event.text));
      if (d.event.finish == sched::FinishReason::kNone) continue;
      out.drafted = d.event.drafted;
      out.accepted = d.event.accepted;
      out.finish_reason = d.event.finish == sched::FinishReason::kLength ? "length"
                          : d.event.finish == sched::FinishReason::kStop ? "stop" : "cancelled";
    }
  }
  emit(utf8.finish());
  if (first) out.ttft_s = double(first - begin) * 1e-6;
  if (out.ids.size() > 1 && last > first) out.decode_tok_s = double(out.ids.size() - 1) / (double(last - first) * 1e-6);
  return out;
}

}  // namespace sluice::lab
