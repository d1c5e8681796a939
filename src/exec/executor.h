// Executor: runs plans. submit() starts a step, collect() waits for the oldest one. Engine thread only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "sched/batch_plan.h"

namespace sluice::exec {

// What a token takes in the cache of all layers: codes of keys and of values, and the scales of both.
struct KvBytes {
  size_t keys = 0, values = 0, scales = 0;
  size_t total() const { return keys + values + scales; }
};

class Executor {
 public:
  virtual ~Executor() = default;
  // At most depth() steps are in flight. What a plan points to is read before submit returns. Errors are device faults.
  virtual Status submit(const sched::BatchPlan& plan) = 0;
  // Into `result`, whose memory is used again.
  virtual Status collect(sched::StepResult& result) = 0;
  // What is in flight, one line a step, for a fault's report.
  virtual std::string describe_in_flight() const { return {}; }
  // Steps that may be in flight: with 2, one can be submitted while another runs.
  virtual int depth() const { return 1; }
  virtual int total_blocks() const = 0;
  virtual int block_tokens() const = 0;
  virtual KvBytes kv_bytes() const { return {}; }
};

}  // namespace sluice::exec
