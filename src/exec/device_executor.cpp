#include "exec/device_executor.h"

#include <algorithm>

#include "sample/sampler.h"

namespace sluice::exec {
namespace {

Status no_room(const char* what) {
  return Error{ErrorCode::kUnavailable, std::string("the device has no room for ") + what, {}};
}

}  // namespace

size_t DeviceExecutor::kv_bytes_per_token(const model::ModelSpec& s, DType kv_type) {
  return size_t(s.num_layers) * 2 * size_t(s.kv_heads) * size_t(s.head_dim) * size_t(dtype_bytes(kv_type));
}

size_t DeviceExecutor::activation_bytes(const model::ModelSpec& s, int max_step_tokens) {
  const size_t a_token = size_t(2 * s.dim + (2 * s.q_heads + 2 * s.kv_heads) * s.head_dim + 2 * s.ffn_dim) * 4;
  return a_token * size_t(max_step_tokens) + size_t(kLogitRows) * size_t(s.dim + s.vocab) * 4;
}

DeviceExecutor::DeviceExecutor(std::shared_ptr<const model::Model> model, DeviceOptions options)
    : model_(std::move(model)), options_(options), activations_(model_->kernels(), model_->spec(), options.max_step_tokens, kLogitRows) {
  const model::ModelSpec& s = model_->spec();
  kernels::ContextOptions c;
  c.threads = options_.threads;
  c.pin = options_.pin_threads;
  c.max_tokens = std::max(options_.max_step_tokens, kLogitRows);
  c.device = model_->kernels().device;
  c.deterministic = options_.deterministic;
  c.max_dim = std::max({s.dim, s.ffn_dim, s.q_heads * s.head_dim});
  context_ = model_->kernels().create(c);
  const size_t block_bytes = size_t(s.kv_heads) * size_t(options_.block_tokens) * size_t(s.head_dim) * size_t(dtype_bytes(options_.kv_type));
  for (int i = 0; i < s.num_layers; ++i) {
    kernels::CacheView view;
    view.dtype = options_.kv_type;
    view.block_stride = block_bytes;
    for (void** part : {&view.keys, &view.values}) {
      cache_memory_.emplace_back(model_->kernels(), block_bytes * size_t(options_.total_blocks));
      *part = cache_memory_.back().data();
      if (!cache_memory_.back().ok()) ready_ = no_room("the cache");
    }
    caches_.push_back(view);
  }
  if (!context_) ready_ = no_room("the scratch memory");
  if (!activations_.ok()) ready_ = no_room("the activations");
  if (!model_->kernels().host_memory) {
    downloaded_ = {model_->kernels(), size_t(kLogitRows) * size_t(s.vocab) * sizeof(float), kernels::MemoryKind::kStaging};
    if (!downloaded_.ok()) ready_ = no_room("logits on the host");
  }
  host_logits_ = model_->kernels().host_memory ? activations_.logits : downloaded_.as<float>();
}

DeviceExecutor::~DeviceExecutor() {
  if (context_) model_->kernels().destroy(context_);
}

Status DeviceExecutor::submit(const sched::BatchPlan& plan) {
  SLUICE_TRY(ready_);
  SLUICE_ASSIGN(const Arrays arrays, place(plan));
  copy_blocks(plan);
  model_->forward(context_, activations_, arrays.token_ids, arrays.batch, caches_);
  return finish_rows(plan, arrays);
}

Result<sched::StepResult> DeviceExecutor::collect() { return std::move(result_); }

Result<DeviceExecutor::Arrays> DeviceExecutor::place(const sched::BatchPlan& plan) {
  token_rows_.clear();
  for (const sched::OutputRow& row : plan.rows) token_rows_.push_back(row.token_row);
  Arrays out;
  out.batch.num_tokens = plan.num_tokens();
  out.batch.num_sequences = plan.num_sequences();
  out.batch.block_tokens = options_.block_tokens;
  const std::pair<const std::vector<int32_t>*, const int32_t**> arrays[] = {
      {&plan.token_ids, &out.token_ids},         {&plan.positions, &out.batch.positions},
      {&plan.sequence_of, &out.batch.sequence_of}, {&plan.query_begin, &out.batch.query_begin},
      {&plan.kv_len, &out.batch.kv_len},         {&plan.block_begin, &out.batch.block_begin},
      {&plan.block_ids, &out.batch.block_ids},   {&token_rows_, &out.rows}};
  if (model_->kernels().host_memory) {
    for (const auto& [from, to] : arrays) *to = from->data();
    return out;
  }
  staged_.clear();
  for (const auto& [from, to] : arrays) staged_.insert(staged_.end(), from->begin(), from->end());
  const size_t bytes = staged_.size() * sizeof(int32_t);
  if (bytes > plan_memory_.bytes()) {
    plan_memory_ = {};
    plan_memory_ = kernels::BackendBuffer(model_->kernels(), std::max(2 * bytes, size_t{1} << 16));
    if (!plan_memory_.ok()) return no_room("a step's plan").error();
  }
  model_->kernels().upload(context_, plan_memory_.data(), staged_.data(), bytes);
  const int32_t* at = plan_memory_.as<int32_t>();
  for (const auto& [from, to] : arrays) {
    *to = at;
    at += from->size();
  }
  return out;
}

void DeviceExecutor::copy_blocks(const sched::BatchPlan& plan) {
  for (const sched::CopyPair& pair : plan.copies)
    for (const kernels::CacheView& cache : caches_) model_->kernels().copy_block(context_, {cache, pair.from, pair.to});
}

Status DeviceExecutor::finished() const {
  if (const char* what = model_->kernels().synchronize(context_))
    return Error{ErrorCode::kInternal, std::string("device fault on ") + model_->kernels().name + ": " + what, {}};
  return {};
}

Status DeviceExecutor::finish_rows(const sched::BatchPlan& plan, const Arrays& arrays) {
  const size_t vocab = size_t(model_->spec().vocab);
  result_.rows.clear();
  result_.rows.resize(plan.rows.size());
  for (size_t begin = 0; begin < plan.rows.size(); begin += kLogitRows) {
    const size_t count = std::min(plan.rows.size() - begin, size_t(kLogitRows));
    model_->head(context_, activations_, arrays.rows + begin, int(count));
    if (!model_->kernels().host_memory)
      model_->kernels().download(context_, host_logits_, activations_.logits, count * vocab * sizeof(float));
    SLUICE_TRY(finished());
    struct Task {
      const sched::OutputRow* rows;
      sample::SampledToken* out;
      float* logits;
      size_t vocab;
    } task{&plan.rows[begin], &result_.rows[begin], host_logits_, vocab};
    model_->kernels().parallel_for(context_, int(count), [](void* arg, int i) noexcept {
      const Task& t = *static_cast<Task*>(arg);
      const sched::OutputRow& row = t.rows[i];
      const std::span<float> logits(t.logits + size_t(i) * t.vocab, t.vocab);
      t.out[i] = row.samples ? sample::sample({logits, row.params, row.history, row.prompt_tokens,
                                               int64_t(row.history.size()), row.banned})
                             : sample::score(logits, row.target, row.num_logprobs);
    }, &task);
  }
  return plan.rows.empty() ? finished() : Status{};
}

}  // namespace sluice::exec
