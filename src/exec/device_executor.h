// DeviceExecutor: a model on one device - cache memory, activations, steps in flight. Owns its kernels::Context (workers,
// scratch). On a device a step is one upload, a forward pass, sampling where the logits are, and tokens that the sampler writes
// to the host's memory. Two steps may be in flight: their arrays and results have places of their own, and a token that the
// earlier one draws is read from device memory. Steps in which every sequence decodes, or verifies as many drafts as the others, are padded to a
// few sizes and recorded: from the second step of a size on, a slot's first one records it, and later ones launch what was recorded.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "exec/executor.h"
#include "exec/plan_memory.h"
#include "exec/recorded_size.h"
#include "exec/row_distributions.h"
#include "exec/touch_ahead.h"
#include "model/model.h"

namespace sluice::exec {

struct DeviceOptions {
  int threads = 1;
  bool pin_threads = false;
  CacheType kv_type;
  int total_blocks = 0;
  int swap_blocks = 0;         // in the host's memory, for sequences that must wait; see SchedulerOptions
  int block_tokens = 16;
  int max_step_tokens = 512;
  int max_sequences = 64;
  int depth = 0;               // steps in flight, 1 or 2; 0: 2 on a device, 1 on a host
  bool graphs = true;          // record decode steps, where the backend can
  bool deterministic = false;  // see kernels::ContextOptions
  int max_context = 0;         // tokens of a sequence; 0: the model's
};

class DeviceExecutor final : public Executor {
 public:
  DeviceExecutor(std::shared_ptr<const model::Model> model, DeviceOptions options);
  ~DeviceExecutor() override;

  // Why the device cannot be used (no room), before any step.
  const Status& ready() const { return ready_; }
  // Has the device do everything once that it loads, chooses or records on first use, which would else hold up the first steps of each size by
  // tens of milliseconds: decode steps of every padded size, and parts of steps of all kinds of sizes. Under a second; nothing on a host.
  // Before any step. Errors are device faults.
  Status warm_up();
  Status submit(const sched::BatchPlan& plan) override;
  Status collect(sched::StepResult& result) override;
  std::string describe_in_flight() const override;
  int depth() const override { return options_.depth; }
  int total_blocks() const override { return options_.total_blocks; }
  int block_tokens() const override { return options_.block_tokens; }
  KvBytes kv_bytes() const override { return kv_bytes(model_->spec(), options_.kv_type, options_.block_tokens); }

  // The logits of a row of the most recent tile of rows, [vocab]. For tools that look at them after collect().
  Status read_logits(int row, float* out);
  // For tools that judge logits, with no step in flight: the plan's forward pass alone, then the logits of output rows
  // [begin, begin + count) of it, count <= logit_rows(), in the host's memory [count, vocab] until the next call of either.
  Status forward(const sched::BatchPlan& plan);
  Result<const float*> logits(int begin, int count);
  // fn(arg, i) for i in [0, n), over the context's threads.
  void parallel_for(int n, void (*fn)(void* arg, int i) noexcept, void* arg) { model_->kernels().parallel_for(context_, n, fn, arg); }
  int logit_rows() const { return activations_.max_rows; }

  // A token's share of its block, rounded up.
  static KvBytes kv_bytes(const model::ModelSpec& spec, CacheType kv_type, int block_tokens);
  static size_t kv_bytes_per_token(const model::ModelSpec& spec, CacheType kv_type, int block_tokens) { return kv_bytes(spec, kv_type, block_tokens).total(); }
  // Of backend memory that an executor takes beside the cache: activations, scratch, steps in flight. total_blocks is not read.
  static size_t step_bytes(const model::ModelSpec& spec, const kernels::KernelTable& kernels, const DeviceOptions& options);
  // Rows of logits that exist at once; a longer list is reduced tile by tile.
  static int logit_rows(const kernels::KernelTable& kernels, int max_sequences);

 private:
  // A step in flight.
  struct Slot {
    explicit Slot(const kernels::KernelTable& kernels, int max_rows);
    bool ok() const { return plan.ok() && tokens.ok() && results.ok() && top.ok(); }
    PlanMemory plan;
    kernels::BackendBuffer tokens;         // [max_step_tokens] drawn, where the next step reads them
    kernels::BackendBuffer results, top;   // staging: what the sampler leaves for the host
    std::vector<int32_t> num_logprobs;     // of the plan's rows
  };
  // A recorded step of a size in one slot.
  struct Recorded {
    kernels::Graph* graph = nullptr;
    const void* base = nullptr;            // of the plan's memory then
  };

  static kernels::ContextOptions context_options(const model::ModelSpec& spec, const kernels::KernelTable& kernels, const DeviceOptions& options);
  void make_caches();
  RecordedSize size_of(const sched::BatchPlan& plan) const;
  // plan: where its rows' distributions are wanted (a host's alone), else null.
  void run(const PlanView& view, Slot& slot, const Slot& before, const sched::BatchPlan* plan = nullptr);
  void run_recorded(int index, RecordedSize size, Slot& slot, const Slot& before);
  void copy_blocks(const sched::BatchPlan& plan);
  Error fault(const char* what) const;

  std::shared_ptr<const model::Model> model_;
  DeviceOptions options_;
  kernels::Context* context_;
  model::Activations activations_;
  std::vector<kernels::BackendBuffer> cache_memory_;
  std::vector<kernels::CacheView> caches_;  // one a layer
  std::unique_ptr<TouchAhead> touch_ahead_; // of a host's memory
  std::vector<kernels::CacheView> swapped_; // likewise, in staging memory
  std::vector<std::unique_ptr<Slot>> slots_;
  uint64_t submitted_ = 0, collected_ = 0;
  RowDistributions distributions_;
  std::vector<float> downloaded_;           // logits of a device
  std::map<std::pair<int, RecordedSize>, Recorded> recorded_;  // by slot and size
  std::set<RecordedSize> seen_;             // that a recordable step has had
  Status ready_;
};

}  // namespace sluice::exec
