#include "lab/bench_step.h"

#include <algorithm>
#include <cstdio>

#include "base/rng.h"

namespace sluice::lab {
namespace {

// Plans for `batch` sequences of random tokens that advance together; each has its own run of blocks.
class Steps {
 public:
  Steps(const LoadedModel& m, std::unique_ptr<exec::DeviceExecutor> executor, int batch, int max_context)
      : model_(m), executor_(std::move(executor)), rng_(7), batch_(batch),
        blocks_each_((max_context + m.device.block_tokens - 1) / m.device.block_tokens) {
    params_.temperature = 0;
    plan_.block_tokens = m.device.block_tokens;
  }

  bool fits() const { return int64_t(batch_) * blocks_each_ <= model_.device.total_blocks; }

  // Every sequence decodes `steps` tokens, each the input of the next step; the executor runs as far ahead as it can.
  void decode(int steps) {
    for (int i = 0; i < steps; ++i) {
      begin_plan(1);
      if (i > 0)
        for (int s = 0; s < batch_; ++s) plan_.token_ids[size_t(s)] = -1 - s;
      draw();
      submit();
    }
    wait(0);
  }
  // Prompts of so many tokens in chunks, side by side; first_token: to the first token.
  void fill(int tokens, bool first_token) {
    const int chunk = std::max(1, model_.device.max_step_tokens / batch_);
    while (length_ < tokens) {
      begin_plan(std::min(chunk, tokens - length_));
      if (first_token && length_ == tokens) draw();
      submit();
    }
    wait(0);
  }
  // To where the first `length` tokens are computed. Of a group of keys that was closed since, they are computed again.
  void rewind(int length) {
    length_ = keys_in_groups(model_.device.kv_type.keys) ? length / kKeyGroup * kKeyGroup : length;
    fill(length, false);
  }

 private:
  void begin_plan(int count) {
    plan_.clear();
    for (int s = 0; s < batch_; ++s) {
      for (int i = 0; i < count; ++i) {
        plan_.token_ids.push_back(int32_t(rng_.below(uint32_t(model_.scheduler.vocab))));
        plan_.positions.push_back(length_ + i);
        plan_.sequence_of.push_back(s);
      }
      plan_.kv_len.push_back(length_ + count);
      plan_.draft_len.push_back(0);
      plan_.query_begin.push_back(plan_.num_tokens());
      const int blocks = (length_ + count + plan_.block_tokens - 1) / plan_.block_tokens;
      for (int b = 0; b < blocks; ++b) plan_.block_ids.push_back(s * blocks_each_ + b);
      plan_.block_begin.push_back(int32_t(plan_.block_ids.size()));
    }
    length_ += count;
  }
  // The last token of every sequence gives one.
  void draw() {
    for (int s = 0; s < batch_; ++s) {
      sched::OutputRow r;
      r.token_row = plan_.query_begin[size_t(s) + 1] - 1;
      r.sequence = s;
      r.params = &params_;
      r.history = history_;
      r.position = length_;
      plan_.rows.push_back(r);
    }
  }
  void submit() {
    wait(executor_->depth() - 1);
    check(executor_->submit(plan_));
    ++in_flight_;
  }
  void wait(int left) {
    for (; in_flight_ > left; --in_flight_) {
      check(executor_->collect(result_));
    }
  }
  // A device's fault ends a benchmark.
  static void check(const Status& s) {
    if (!s.ok()) std::fprintf(stderr, "%s\n", s.error().message.c_str());
    SLUICE_CHECK(s.ok());
  }

  const LoadedModel& model_;
  std::unique_ptr<exec::DeviceExecutor> executor_;
  sched::BatchPlan plan_;
  sched::StepResult result_;
  Rng rng_;
  sample::SamplingParams params_;
  const std::vector<int32_t> history_{0};
  int batch_, blocks_each_, length_ = 0, in_flight_ = 0;
};

// tokens_a_step: of a decode step, or of the whole prompt.
void summarise(BenchRow& row, std::vector<double> rates, int tokens_a_step, double bytes_a_token, double flops_a_token, const MachineCeilings& machine) {
  std::sort(rates.begin(), rates.end());
  row.tok_s_min = rates.front();
  row.tok_s_max = rates.back();
  row.tok_s = rates[rates.size() / 2];
  row.step_ms = 1e3 * tokens_a_step / row.tok_s;
  row.gb_s = row.tok_s * bytes_a_token * 1e-9;
  row.gflop_s = row.tok_s * flops_a_token * 1e-9;
  row.pct_of_bandwidth = machine.read_gb_s > 0 ? 100 * row.gb_s / machine.read_gb_s : 0;
  row.pct_of_compute = machine.compute_gflop_s() > 0 ? 100 * row.gflop_s / machine.compute_gflop_s() : 0;
}

}  // namespace

double token_flops(const model::ModelSpec& s, double context, bool head) {
  const double kv = double(s.kv_heads) * s.head_dim, q = double(s.q_heads) * s.head_dim;
  const double layer = double(s.dim) * (2 * q + 2 * kv + 3.0 * s.ffn_dim) + 2 * q * context;
  return 2 * (layer * s.num_layers + (head ? double(s.dim) * s.vocab : 0));
}

Result<std::vector<BenchRow>> bench_decode(const LoadedModel& m, const BenchOptions& o, const MachineCeilings& machine) {
  std::vector<BenchRow> rows;
  const SteadyClock clock;
  for (int batch : o.batches) {
    SLUICE_ASSIGN(auto executor, m.make_executor());
    SLUICE_TRY(executor->warm_up());
    Steps steps(m, std::move(executor), batch, o.context + o.tokens);
    if (!steps.fits()) continue;
    steps.fill(o.context, false);
    std::vector<double> rates;
    for (int repeat = -1; repeat < o.repeats; ++repeat) {  // the first warms up
      steps.rewind(o.context);
      const TimeUs begin = clock.now_us();
      steps.decode(o.tokens);
      if (repeat >= 0) rates.push_back(double(batch) * o.tokens / (double(clock.now_us() - begin) * 1e-6));
    }
    BenchRow row{"decode", batch, o.context};
    const double context = o.context + o.tokens / 2.0;
    const double bytes = double(m.memory.weights_bytes) / batch + context * double(m.memory.kv_bytes_per_token);
    summarise(row, rates, batch, bytes, token_flops(m.model->spec(), context, true), machine);
    rows.push_back(row);
  }
  return rows;
}

Result<std::vector<BenchRow>> bench_prefill(const LoadedModel& m, const BenchOptions& o, const MachineCeilings& machine) {
  std::vector<BenchRow> rows;
  const SteadyClock clock;
  SLUICE_ASSIGN(auto executor, m.make_executor());
  SLUICE_TRY(executor->warm_up());
  Steps steps(m, std::move(executor), 1, o.context);
  if (!steps.fits()) return rows;
  std::vector<double> rates;
  for (int repeat = -1; repeat < o.repeats; ++repeat) {
    steps.rewind(0);
    const TimeUs begin = clock.now_us();
    steps.fill(o.context, true);
    if (repeat >= 0) rates.push_back(o.context / (double(clock.now_us() - begin) * 1e-6));
  }
  BenchRow row{"prefill", 1, o.context};
  const int chunks = (o.context + m.device.max_step_tokens - 1) / m.device.max_step_tokens;
  const double bytes = double(m.memory.weights_bytes) * chunks / o.context;
  summarise(row, rates, o.context, bytes, token_flops(m.model->spec(), o.context / 2.0, false), machine);
  rows.push_back(row);
  return rows;
}

}  // namespace sluice::lab
