// DeviceExecutor: a model on one device - cache memory, activations, sampling. Owns its kernels::Context (workers, scratch).
#pragma once
#include <memory>
#include <vector>

#include "exec/executor.h"
#include "model/model.h"

namespace sluice::exec {

struct DeviceOptions {
  int threads = 1;
  bool pin_threads = false;
  DType kv_type = DType::kF16;
  int total_blocks = 0;
  int block_tokens = 16;
  int max_step_tokens = 512;
  bool deterministic = false;  // see kernels::ContextOptions
};

class DeviceExecutor final : public Executor {
 public:
  DeviceExecutor(std::shared_ptr<const model::Model> model, DeviceOptions options);
  ~DeviceExecutor() override;

  Status submit(const sched::BatchPlan& plan) override;
  Result<sched::StepResult> collect() override;
  int total_blocks() const override { return options_.total_blocks; }
  int block_tokens() const override { return options_.block_tokens; }

  // The logits of the most recent tile of rows; [rows, vocab]. For tools that look at them after collect().
  const float* last_logits() const { return host_logits_; }

  static size_t kv_bytes_per_token(const model::ModelSpec& spec, DType kv_type);
  static size_t activation_bytes(const model::ModelSpec& spec, int max_step_tokens);
  // Rows of logits that exist at once; a longer list is reduced tile by tile.
  static constexpr int kLogitRows = 64;

 private:
  // The plan's arrays where kernels can read them: the plan's own on a host, one copy of all of them on a device.
  struct Arrays {
    kernels::BatchView batch;
    const int32_t *token_ids, *rows;
  };
  Result<Arrays> place(const sched::BatchPlan& plan);
  Status finish_rows(const sched::BatchPlan& plan, const Arrays& arrays);
  Status finished() const;  // waits; what went wrong on the device
  void copy_blocks(const sched::BatchPlan& plan);

  std::shared_ptr<const model::Model> model_;
  DeviceOptions options_;
  kernels::Context* context_;
  model::Activations activations_;
  std::vector<kernels::BackendBuffer> cache_memory_;
  std::vector<kernels::CacheView> caches_;  // one a layer
  sched::StepResult result_;
  std::vector<int32_t> token_rows_;          // of the plan's output rows
  std::vector<int32_t> staged_;              // all arrays of a plan, for a device
  kernels::BackendBuffer plan_memory_;
  // Logits to sample from. On a device they are downloaded, and the host's sampler draws from them: there is no sampling on
  // devices yet.
  kernels::BackendBuffer downloaded_;
  float* host_logits_;
  Status ready_;                             // why the device cannot be used
};

}  // namespace sluice::exec
