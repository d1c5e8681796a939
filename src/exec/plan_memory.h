// PlanMemory: one step's arrays where kernels read them. The host lays them out in staging memory (in the backend's own, where
// that is the host's) and a device gets them in one copy. Offsets depend on the numbers of tokens, sequences and rows alone, so
// that recorded kernels find them again. Engine thread only.
#pragma once
#include <string>
#include <vector>

#include "kernels/backend_buffer.h"
#include "sched/batch_plan.h"

namespace sluice::exec {

// Where a step's arrays are. Pointers are backend memory and hold until the next fill.
struct PlanView {
  kernels::BatchView batch;
  const int32_t* token_ids = nullptr;
  const int32_t* token_rows = nullptr;       // [rows]: which tokens' logits are wanted
  const sample::SampleRow* rows = nullptr;   // [rows]
  sample::LogitChange* changes = nullptr;    // what the rows' ranges point into
  int num_rows = 0;
};

class PlanMemory {
 public:
  static constexpr size_t kFirstBytes = size_t{1} << 20;  // taken at once; more when a plan needs it
  explicit PlanMemory(const kernels::KernelTable& kernels);
  bool ok() const { return host_.ok() && device_.ok(); }

  // Lays out the plan for `padded` sequences (at least the plan's). Those beyond the plan's have as many tokens as each of these, in block
  // `pad_block`, which all are sampled; only plans whose sequences have equally many tokens, a block's at most, and a row for each are padded.
  // vocab bounds the tokens of changes. False: the device has no room.
  bool fill(const sched::BatchPlan& plan, int padded, int32_t pad_block, int vocab);
  // Queues the copy to the device, beside the kernels of the step before.
  void send(kernels::Context* context) const;
  const PlanView& view() const { return view_; }
  // One line: the plan's sizes, then each sequence's tokens and length.
  std::string describe() const;
  // Changes whenever recorded kernels would read another place.
  const void* base() const { return at_device_; }

 private:
  struct Layout;
  bool reserve(size_t bytes);
  void put_arrays(const sched::BatchPlan& plan, const Layout& at, int32_t pad_block);
  void put_rows(const sched::BatchPlan& plan, const Layout& at);

  const kernels::KernelTable* kernels_;
  kernels::BackendBuffer host_, device_;
  char* at_host_ = nullptr;
  char* at_device_ = nullptr;
  size_t used_ = 0, query_begin_ = 0, kv_len_ = 0;  // bytes in use; where those arrays are
  uint64_t step_ = 0;
  std::vector<sample::LogitChange> changes_;
  std::vector<sample::SampleRow> rows_;
  PlanView view_;
};

}  // namespace sluice::exec
