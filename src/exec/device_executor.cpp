#include "exec/device_executor.h"

#include <algorithm>

#include "sample/sampler.h"

namespace sluice::exec {

size_t DeviceExecutor::kv_bytes_per_token(const model::ModelSpec& s, DType kv_type) {
  return size_t(s.num_layers) * 2 * size_t(s.kv_heads) * size_t(s.head_dim) * size_t(dtype_bytes(kv_type));
}

size_t DeviceExecutor::activation_bytes(const model::ModelSpec& s, int max_step_tokens) {
  const size_t a_token = size_t(2 * s.dim + (2 * s.q_heads + 2 * s.kv_heads) * s.head_dim + 2 * s.ffn_dim) * 4;
  return a_token * size_t(max_step_tokens) + size_t(kLogitRows) * size_t(s.dim + s.vocab) * 4;
}

DeviceExecutor::DeviceExecutor(std::shared_ptr<const model::Model> model, DeviceOptions options)
    : model_(std::move(model)), options_(options), activations_(model_->spec(), options.max_step_tokens, kLogitRows) {
  const model::ModelSpec& s = model_->spec();
  kernels::ContextOptions c;
  c.threads = options_.threads;
  c.pin = options_.pin_threads;
  c.max_tokens = std::max(options_.max_step_tokens, kLogitRows);
  c.max_dim = std::max({s.dim, s.ffn_dim, s.q_heads * s.head_dim});
  context_ = model_->kernels().create(c);
  const size_t block_bytes = size_t(s.kv_heads) * size_t(options_.block_tokens) * size_t(s.head_dim) * size_t(dtype_bytes(options_.kv_type));
  for (int i = 0; i < s.num_layers; ++i) {
    kernels::CacheView view;
    view.dtype = options_.kv_type;
    view.block_stride = block_bytes;
    cache_memory_.emplace_back(block_bytes * size_t(options_.total_blocks));
    view.keys = cache_memory_.back().data();
    cache_memory_.emplace_back(block_bytes * size_t(options_.total_blocks));
    view.values = cache_memory_.back().data();
    caches_.push_back(view);
  }
}

DeviceExecutor::~DeviceExecutor() { model_->kernels().destroy(context_); }

Status DeviceExecutor::submit(const sched::BatchPlan& plan) {
  copy_blocks(plan);
  kernels::BatchView batch;
  batch.num_tokens = plan.num_tokens();
  batch.num_sequences = plan.num_sequences();
  batch.positions = plan.positions.data();
  batch.sequence_of = plan.sequence_of.data();
  batch.query_begin = plan.query_begin.data();
  batch.kv_len = plan.kv_len.data();
  batch.block_begin = plan.block_begin.data();
  batch.block_ids = plan.block_ids.data();
  batch.block_tokens = options_.block_tokens;
  model_->forward(context_, activations_, plan.token_ids.data(), batch, caches_);
  finish_rows(plan);
  return {};
}

Result<sched::StepResult> DeviceExecutor::collect() { return std::move(result_); }

void DeviceExecutor::copy_blocks(const sched::BatchPlan& plan) {
  for (const sched::CopyPair& pair : plan.copies)
    for (const kernels::CacheView& cache : caches_) model_->kernels().copy_block(context_, {cache, pair.from, pair.to});
}

void DeviceExecutor::finish_rows(const sched::BatchPlan& plan) {
  const size_t vocab = size_t(model_->spec().vocab);
  result_.rows.clear();
  result_.rows.resize(plan.rows.size());
  for (size_t begin = 0; begin < plan.rows.size(); begin += kLogitRows) {
    const size_t count = std::min(plan.rows.size() - begin, size_t(kLogitRows));
    tile_rows_.clear();
    for (size_t i = 0; i < count; ++i) tile_rows_.push_back(plan.rows[begin + i].token_row);
    model_->head(context_, activations_, tile_rows_);
    struct Task {
      const sched::OutputRow* rows;
      sample::SampledToken* out;
      float* logits;
      size_t vocab;
    } task{&plan.rows[begin], &result_.rows[begin], activations_.logits, vocab};
    model_->kernels().parallel_for(context_, int(count), [](void* arg, int i) noexcept {
      const Task& t = *static_cast<Task*>(arg);
      const sched::OutputRow& row = t.rows[i];
      const std::span<float> logits(t.logits + size_t(i) * t.vocab, t.vocab);
      t.out[i] = row.samples ? sample::sample({logits, row.params, row.history, row.prompt_tokens,
                                               int64_t(row.history.size()), row.banned})
                             : sample::score(logits, row.target, row.num_logprobs);
    }, &task);
  }
}

}  // namespace sluice::exec
