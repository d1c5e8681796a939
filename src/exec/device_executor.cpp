#include "exec/device_executor.h"

#include <algorithm>

#include "exec/warm_up.h"

namespace sluice::exec {
namespace {

constexpr int kSlots = 2;
constexpr int kMostRecorded = 256;  // tokens; longer steps hide the launches of their kernels, and padding would cost them more

Status no_room(const char* what) {
  return Error{ErrorCode::kUnavailable, std::string("the device has no room for ") + what, {}};
}

}  // namespace

// Of keys in groups, what their scales and the open group's rows take is all beyond the codes.
KvBytes DeviceExecutor::kv_bytes(const model::ModelSpec& s, CacheType type, int block_tokens) {
  const size_t rows = size_t(s.num_layers) * size_t(s.kv_heads), tokens = size_t(block_tokens);
  const size_t keys = keys_in_groups(type.keys) ? size_t(s.head_dim) / 2 : cache_code_bytes(type.keys, s.head_dim), values = cache_code_bytes(type.values, s.head_dim);
  const size_t block = cache_key_bytes(type.keys, s.head_dim, block_tokens) + cache_value_bytes(type.values, s.head_dim, block_tokens);
  return {rows * keys, rows * values, (rows * (block - tokens * (keys + values)) + tokens - 1) / tokens};
}

static size_t step_key_bytes(const model::ModelSpec& s, CacheType type, int tokens, int sequences) {
  return keys_in_groups(type.keys) ? step_groups(tokens, sequences) * size_t(s.kv_heads) * open_group_bytes(s.head_dim) : 0;
}

size_t DeviceExecutor::step_bytes(const model::ModelSpec& s, const kernels::KernelTable& kernels, const DeviceOptions& o) {
  const size_t a_token = size_t(2 * s.dim + (2 * s.q_heads + 2 * s.kv_heads) * s.head_dim + 2 * s.ffn_dim) * 4;
  const int rows = logit_rows(kernels, o.max_sequences);
  const kernels::ContextOptions c = context_options(s, kernels, o);
  return a_token * size_t(o.max_step_tokens) + size_t(rows) * size_t(s.dim + s.vocab) * 4 + kernels.context_bytes(c) +
         step_key_bytes(s, o.kv_type, o.max_step_tokens, std::min(o.max_sequences, o.max_step_tokens)) +
         kSlots * (PlanMemory::kFirstBytes + size_t(c.max_tokens) * sizeof(int32_t));
}

kernels::ContextOptions DeviceExecutor::context_options(const model::ModelSpec& s, const kernels::KernelTable& kernels, const DeviceOptions& o) {
  kernels::ContextOptions c;
  c.threads = o.threads;
  c.pin = o.pin_threads;
  c.max_tokens = std::max(o.max_step_tokens, logit_rows(kernels, o.max_sequences));
  c.device = kernels.device;
  c.deterministic = o.deterministic;
  c.max_dim = std::max({s.dim, s.ffn_dim, s.q_heads * s.head_dim});
  c.cache_type = o.kv_type;
  c.head_dim = s.head_dim;
  c.max_context = o.max_context > 0 ? std::min(o.max_context, s.max_context) : s.max_context;
  return c;
}

int DeviceExecutor::logit_rows(const kernels::KernelTable& kernels, int max_sequences) {
  return kernels.host_memory ? 64 : std::clamp(padded_sequences(max_sequences), 64, 1024);
}

DeviceExecutor::Slot::Slot(const kernels::KernelTable& kernels, int max_rows)
    : plan(kernels), tokens(kernels, size_t(max_rows) * sizeof(int32_t)),
      results(kernels, size_t(max_rows) * sizeof(sample::SampledRow), kernels::MemoryKind::kStaging),
      top(kernels, size_t(max_rows) * sample::kMaxLogprobs * sizeof(sample::TokenLogprob), kernels::MemoryKind::kStaging) {}

DeviceExecutor::DeviceExecutor(std::shared_ptr<const model::Model> model, DeviceOptions options)
    : model_(std::move(model)), options_(options),
      activations_(model_->kernels(), model_->spec(), options.max_step_tokens, logit_rows(model_->kernels(), options.max_sequences)) {
  const model::ModelSpec& s = model_->spec();
  const kernels::KernelTable& table = model_->kernels();
  if (options_.depth == 0) options_.depth = table.host_memory ? 1 : kSlots;
  SLUICE_CHECK(options_.depth >= 1 && options_.depth <= kSlots);
  const kernels::ContextOptions c = context_options(s, table, options_);
  context_ = table.create(c);
  if (!context_) ready_ = no_room("the scratch memory");
  if (!activations_.ok()) ready_ = no_room("the activations");
  for (int i = 0; i < kSlots; ++i) {
    slots_.push_back(std::make_unique<Slot>(table, c.max_tokens));
    if (!slots_.back()->ok()) ready_ = no_room("a step's plan and results");
  }
  make_caches();
}

// One block more than the scheduler knows of: padding writes there.
void DeviceExecutor::make_caches() {
  const model::ModelSpec& s = model_->spec();
  void* step_keys = nullptr;  // layers take turns; room for any number of sequences, since a host's memory costs nothing untouched
  if (const size_t bytes = step_key_bytes(s, options_.kv_type, options_.max_step_tokens, options_.max_step_tokens)) {
    cache_memory_.emplace_back(model_->kernels(), bytes);
    step_keys = cache_memory_.back().data();
    if (!cache_memory_.back().ok()) ready_ = no_room("a step's keys");
  }
  for (int i = 0; i < s.num_layers; ++i) {
    kernels::CacheView view;
    view.type = options_.kv_type;
    view.key_stride = size_t(s.kv_heads) * cache_key_bytes(view.type.keys, s.head_dim, options_.block_tokens);
    view.value_stride = size_t(s.kv_heads) * cache_value_bytes(view.type.values, s.head_dim, options_.block_tokens);
    view.step_keys = step_keys;
    const auto take = [&](int blocks, kernels::MemoryKind kind, const char* what) {
      for (const auto& [part, stride] : {std::pair{&view.keys, view.key_stride}, {&view.values, view.value_stride}}) {
        cache_memory_.emplace_back(model_->kernels(), stride * size_t(blocks), kind);
        *part = cache_memory_.back().data();
        if (!cache_memory_.back().ok()) ready_ = no_room(what);
      }
    };
    take(options_.total_blocks + 1, kernels::MemoryKind::kBackend, "the cache");
    caches_.push_back(view);
    if (options_.swap_blocks == 0) continue;
    take(options_.swap_blocks, kernels::MemoryKind::kStaging, "swapped blocks");
    swapped_.push_back(view);
  }
  if (!model_->kernels().host_memory || !ready_.ok()) return;
  std::vector<TouchAhead::Part> parts;
  for (const kernels::CacheView& c : caches_) parts.insert(parts.end(), {{c.keys, c.key_stride}, {c.values, c.value_stride}});
  touch_ahead_ = std::make_unique<TouchAhead>(std::move(parts), options_.total_blocks);
}

DeviceExecutor::~DeviceExecutor() {
  if (!context_) return;
  model_->kernels().synchronize(context_);
  for (auto& [key, recorded] : recorded_)
    if (recorded.graph) model_->kernels().destroy_graph(context_, recorded.graph);
  model_->kernels().destroy(context_);
}

RecordedSize DeviceExecutor::size_of(const sched::BatchPlan& plan) const {
  const model::ModelSpec& s = model_->spec();
  if (!options_.graphs || model_->kernels().host_memory) return {};
  return recorded_size(plan, std::min({activations_.max_rows, activations_.max_tokens, kMostRecorded}),
                       std::min(options_.block_tokens, kernels::kRecordedRows / (s.q_heads / s.kv_heads)));
}

Status DeviceExecutor::submit(const sched::BatchPlan& plan) {
  SLUICE_TRY(ready_);
  SLUICE_CHECK(submitted_ - collected_ < uint64_t(options_.depth));
  const int index = int(submitted_ % kSlots);
  Slot& slot = *slots_[size_t(index)];
  const Slot& before = *slots_[size_t(1 - index)];
  if (touch_ahead_)
    for (int s = 0; s < plan.num_sequences(); ++s) touch_ahead_->reach(plan.block_ids[size_t(plan.block_begin[size_t(s) + 1]) - 1]);  // the newest of its blocks
  slot.num_logprobs.clear();
  for (const sched::OutputRow& r : plan.rows) slot.num_logprobs.push_back(r.samples ? r.params->num_logprobs : r.num_logprobs);
  const RecordedSize size = size_of(plan);
  const bool recordable = size.sequences > 0;
  if (!slot.plan.fill(plan, recordable ? size.sequences : plan.num_sequences(), options_.total_blocks, model_->spec().vocab)) return no_room("a step's plan");
  slot.plan.send(context_);
  copy_blocks(plan);
  const bool distributions = RowDistributions::wanted(plan);
  SLUICE_CHECK(!distributions || model_->kernels().host_memory);
  if (recordable) run_recorded(index, size, slot, before);
  else run(slot.plan.view(), slot, before, distributions ? &plan : nullptr);
  model_->kernels().mark(context_, index);
  ++submitted_;
  return {};
}

// What a step does on the device; the same calls whether they run or are recorded.
void DeviceExecutor::run(const PlanView& view, Slot& slot, const Slot& before, const sched::BatchPlan* plan) {
  model_->forward(context_, activations_, view.token_ids, before.tokens.as<int32_t>(), view.batch, caches_);
  for (int begin = 0; begin < view.num_rows; begin += activations_.max_rows) {
    const int count = std::min(view.num_rows - begin, activations_.max_rows);
    model_->head(context_, activations_, view.token_rows + begin, count);
    kernels::SampleArgs a;
    a.num_rows = count;
    a.vocab = model_->spec().vocab;
    a.logits = activations_.logits;
    a.rows = view.rows + begin;
    a.changes = view.changes;
    a.tokens = slot.tokens.as<int32_t>() + begin;
    a.results = slot.results.as<sample::SampledRow>() + begin;
    a.top = slot.top.as<sample::TokenLogprob>() + size_t(begin) * sample::kMaxLogprobs;
    const auto rows = plan ? std::span(plan->rows).subspan(size_t(begin), size_t(count)) : std::span<const sched::OutputRow>();
    distributions_.read(rows, a);
    model_->kernels().sample(context_, a);
    distributions_.decide(rows, a);
  }
}

// The first step of a kind runs as it is, so that whatever kernels load or tune on first use stays out of the recording.
void DeviceExecutor::run_recorded(int index, RecordedSize size, Slot& slot, const Slot& before) {
  const kernels::KernelTable& table = model_->kernels();
  Recorded& r = recorded_[{index, size}];
  if (r.graph && r.base != slot.plan.base()) {
    table.destroy_graph(context_, r.graph);
    r.graph = nullptr;
  }
  if (!r.graph && !seen_.insert(size).second && table.begin_graph(context_)) {
    run(slot.plan.view(), slot, before);
    r.graph = table.end_graph(context_);
    r.base = slot.plan.base();
  }
  if (r.graph) table.launch_graph(context_, r.graph);
  else run(slot.plan.view(), slot, before);
}

Status DeviceExecutor::warm_up() {
  SLUICE_TRY(ready_);
  SLUICE_CHECK(submitted_ == 0);
  const kernels::KernelTable& table = model_->kernels();
  if (table.host_memory) return {};
  const WarmUp plans(options_.total_blocks, options_.block_tokens);
  sched::StepResult result;
  const auto step = [&](const sched::BatchPlan& plan) -> Status {
    SLUICE_TRY(submit(plan));
    return collect(result);
  };
  const int longest = std::min(options_.max_step_tokens, context_options(model_->spec(), table, options_).max_context);
  if (longest > 1) SLUICE_TRY(step(plans.prompt(1, std::min(longest - 1, 64))));
  SLUICE_TRY(step(plans.sampled()));
  const int most = std::min({options_.max_sequences, options_.max_step_tokens, activations_.max_rows, kMostRecorded});
  for (int n = 1, last = 0; last < most; n = last + 1) {
    last = padded_sequences(n);
    if (last > activations_.max_rows) break;
    const sched::BatchPlan plan = plans.decodes(std::min(last, most));
    for (int i = 0; i < (options_.graphs ? 1 + kSlots : 1); ++i) SLUICE_TRY(step(plan));  // as it is, then recorded in each slot
  }
  // Of other steps a layer of each kind will do: what it does first is what all of them do.
  const std::vector<int> layers = model_->unlike_layers();
  Slot& slot = *slots_[0];
  for (const int tokens : WarmUp::sizes(longest)) {
    if (!slot.plan.fill(plans.prompt(1, tokens - 1), 2, options_.total_blocks, model_->spec().vocab)) return no_room("a step's plan");
    slot.plan.send(context_);
    for (const int layer : layers) model_->run_layer(context_, activations_, layer, slot.plan.view().batch, caches_[size_t(layer)]);
    if (tokens <= activations_.max_rows) model_->head(context_, activations_, slot.plan.view().batch.sequence_of, tokens);  // of whichever tokens
    if (const char* what = table.synchronize(context_)) return fault(what);  // before the plan's memory is written again
  }
  return {};
}

Status DeviceExecutor::collect(sched::StepResult& result) {
  SLUICE_CHECK(collected_ < submitted_);
  const int index = int(collected_ % kSlots);
  const Slot& slot = *slots_[size_t(index)];
  if (const char* what = model_->kernels().wait(context_, index)) return fault(what);
  ++collected_;
  result.rows.resize(slot.num_logprobs.size());
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const sample::SampledRow& row = slot.results.as<sample::SampledRow>()[i];
    result.rows[i].token = row.token;
    result.rows[i].logprob = row.logprob;
    result.rows[i].top.clear();
    const int num_top = std::min(slot.num_logprobs[i], model_->spec().vocab);
    if (num_top <= 0) continue;
    const sample::TokenLogprob* top = slot.top.as<sample::TokenLogprob>() + i * sample::kMaxLogprobs;
    result.rows[i].top.assign(top, top + num_top);
  }
  return {};
}

void DeviceExecutor::copy_blocks(const sched::BatchPlan& plan) {
  for (const sched::CopyPair& pair : plan.copies)
    for (size_t layer = 0; layer < caches_.size(); ++layer) {
      const auto in = [&](kv::BlockId b) { return b < options_.total_blocks ? caches_[layer] : swapped_[layer]; };
      const auto at = [&](kv::BlockId b) { return b < options_.total_blocks ? b : b - options_.total_blocks; };
      model_->kernels().copy_block(context_, {in(pair.from), in(pair.to), at(pair.from), at(pair.to)});
    }
}

Error DeviceExecutor::fault(const char* what) const {
  return {ErrorCode::kInternal, std::string("device fault on ") + model_->kernels().name + ": " + what, {}};
}

std::string DeviceExecutor::describe_in_flight() const {
  std::string out;
  for (uint64_t i = collected_; i < submitted_; ++i) out += slots_[size_t(i % kSlots)]->plan.describe() + "\n";
  return out;
}

Status DeviceExecutor::read_logits(int row, float* out) {
  const size_t vocab = size_t(model_->spec().vocab);
  SLUICE_CHECK(row >= 0 && row < activations_.max_rows);
  model_->kernels().download(context_, out, activations_.logits + size_t(row) * vocab, vocab * sizeof(float));
  if (const char* what = model_->kernels().synchronize(context_)) return fault(what);
  return {};
}

Status DeviceExecutor::forward(const sched::BatchPlan& plan) {
  SLUICE_TRY(ready_);
  SLUICE_CHECK(submitted_ == collected_);
  Slot& slot = *slots_[0];
  if (!slot.plan.fill(plan, plan.num_sequences(), options_.total_blocks, model_->spec().vocab)) return no_room("a step's plan");
  slot.plan.send(context_);
  copy_blocks(plan);
  const PlanView& view = slot.plan.view();
  model_->forward(context_, activations_, view.token_ids, slots_[1]->tokens.as<int32_t>(), view.batch, caches_);
  return {};
}

Result<const float*> DeviceExecutor::logits(int begin, int count) {
  const PlanView& view = slots_[0]->plan.view();
  SLUICE_CHECK(begin >= 0 && count >= 0 && count <= activations_.max_rows && begin + count <= view.num_rows);
  const kernels::KernelTable& table = model_->kernels();
  model_->head(context_, activations_, view.token_rows + begin, count);
  const float* at = activations_.logits;
  if (!table.host_memory) {
    downloaded_.resize(size_t(count) * size_t(model_->spec().vocab));
    table.download(context_, downloaded_.data(), at, downloaded_.size() * sizeof(float));
    at = downloaded_.data();
  }
  if (const char* what = table.synchronize(context_)) return fault(what);
  return at;
}

}  // namespace sluice::exec
