#include "exec/plan_memory.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "sample/sampler.h"

namespace sluice::exec {
namespace {

constexpr size_t kAlign = 64;

}  // namespace

// Byte offsets. Arrays of a fixed number come first; block references and changes, whose numbers vary, last.
struct PlanMemory::Layout {
  int tokens, sequences, rows, blocks;
  size_t token_ids, positions, sequence_of, query_begin, kv_len, block_begin, token_rows, sample_rows, block_ids, changes, end;

  Layout(int tokens, int sequences, int rows, int blocks, size_t num_changes)
      : tokens(tokens), sequences(sequences), rows(rows), blocks(blocks) {
    size_t at = 0;
    const auto array = [&](size_t count, size_t size) {
      const size_t begin = at;
      at = (at + count * size + kAlign - 1) / kAlign * kAlign;
      return begin;
    };
    const size_t T = size_t(tokens), S = size_t(sequences), R = size_t(rows);
    token_ids = array(T, 4);
    positions = array(T, 4);
    sequence_of = array(T, 4);
    query_begin = array(S + 1, 4);
    kv_len = array(S, 4);
    block_begin = array(S + 1, 4);
    token_rows = array(R, 4);
    sample_rows = array(R, sizeof(sample::SampleRow));
    block_ids = array(size_t(blocks), 4);
    // Changes are counted from the memory's start, which recorded kernels know: at a multiple of their size.
    changes = (at + sizeof(sample::LogitChange) - 1) / sizeof(sample::LogitChange) * sizeof(sample::LogitChange);
    end = changes + num_changes * sizeof(sample::LogitChange);
  }
};

PlanMemory::PlanMemory(const kernels::KernelTable& kernels) : kernels_(&kernels) { reserve(kFirstBytes); }

bool PlanMemory::reserve(size_t bytes) {
  if (bytes <= host_.bytes()) return true;
  const size_t size = std::max(2 * bytes, kFirstBytes);
  host_ = {};
  device_ = {};
  host_ = kernels::BackendBuffer(*kernels_, size, kernels::MemoryKind::kStaging);
  if (!kernels_->host_memory) device_ = kernels::BackendBuffer(*kernels_, size);
  at_host_ = host_.as<char>();
  at_device_ = kernels_->host_memory ? at_host_ : device_.as<char>();
  return ok();
}

bool PlanMemory::fill(const sched::BatchPlan& plan, int padded, int32_t pad_block, int vocab) {
  changes_.clear();
  rows_.clear();
  for (const sched::OutputRow& r : plan.rows) {
    sample::SampleRow row;
    if (r.samples) row = sample::make_row(*r.params, r.position);
    else row.target = r.target, row.num_logprobs = r.num_logprobs;
    row.changes_begin = int32_t(changes_.size());
    if (r.samples) sample::add_changes(*r.params, r.history, r.prompt_tokens, r.banned, vocab, changes_, r.drafts);
    row.changes_end = int32_t(changes_.size());
    rows_.push_back(row);
  }
  const int pads = padded - plan.num_sequences(), more = pads > 0 ? pads * (plan.num_tokens() / plan.num_sequences()) : 0;
  const Layout at(plan.num_tokens() + more, padded, int(plan.rows.size()) + more, int(plan.block_ids.size()) + pads, changes_.size());
  if (!reserve(at.end)) return false;
  for (sample::SampleRow& row : rows_) {
    row.changes_begin += int32_t(at.changes / sizeof(sample::LogitChange));
    row.changes_end += int32_t(at.changes / sizeof(sample::LogitChange));
  }
  put_arrays(plan, at, pad_block);
  put_rows(plan, at);
  used_ = at.end;
  query_begin_ = at.query_begin;
  kv_len_ = at.kv_len;
  step_ = plan.step;

  const auto ints = [&](size_t offset) { return reinterpret_cast<const int32_t*>(at_device_ + offset); };
  view_ = {};
  view_.batch = {at.tokens, padded, ints(at.positions), ints(at.sequence_of), ints(at.query_begin), ints(at.kv_len),
                 ints(at.block_begin), ints(at.block_ids), plan.block_tokens};
  view_.batch.host_query_begin = reinterpret_cast<const int32_t*>(at_host_ + at.query_begin);
  view_.batch.host_kv_len = reinterpret_cast<const int32_t*>(at_host_ + at.kv_len);
  view_.token_ids = ints(at.token_ids);
  view_.token_rows = ints(at.token_rows);
  view_.rows = reinterpret_cast<const sample::SampleRow*>(at_device_ + at.sample_rows);
  view_.changes = reinterpret_cast<sample::LogitChange*>(at_device_);
  view_.num_rows = at.rows;
  return true;
}

void PlanMemory::put_arrays(const sched::BatchPlan& plan, const Layout& at, int32_t pad_block) {
  const int S = plan.num_sequences(), T = plan.num_tokens(), pads = at.sequences - S;
  const auto ints = [&](size_t offset, const std::vector<int32_t>& from) {
    auto* to = reinterpret_cast<int32_t*>(at_host_ + offset);
    std::copy(from.begin(), from.end(), to);
    return to + from.size();
  };
  int32_t* ids = ints(at.token_ids, plan.token_ids);
  int32_t* positions = ints(at.positions, plan.positions);
  int32_t* sequence_of = ints(at.sequence_of, plan.sequence_of);
  int32_t* query_begin = ints(at.query_begin, plan.query_begin);
  int32_t* kv_len = ints(at.kv_len, plan.kv_len);
  int32_t* block_begin = ints(at.block_begin, plan.block_begin);
  int32_t* block_ids = ints(at.block_ids, plan.block_ids);
  const int each = pads > 0 ? (at.tokens - T) / pads : 0;
  SLUICE_CHECK(each <= plan.block_tokens);
  for (int i = 0; i < at.tokens - T; ++i) {
    ids[i] = 0;
    positions[i] = i % each;
    sequence_of[i] = S + i / each;
  }
  for (int i = 0; i < pads; ++i) {
    query_begin[i] = T + (i + 1) * each;
    kv_len[i] = each;
    block_begin[i] = int32_t(plan.block_ids.size()) + i + 1;
    block_ids[i] = pad_block;
  }
}

void PlanMemory::put_rows(const sched::BatchPlan& plan, const Layout& at) {
  auto* token_rows = reinterpret_cast<int32_t*>(at_host_ + at.token_rows);
  for (const sched::OutputRow& r : plan.rows) *token_rows++ = r.token_row;
  auto* rows = reinterpret_cast<sample::SampleRow*>(at_host_ + at.sample_rows);
  rows = std::copy(rows_.begin(), rows_.end(), rows);
  for (int i = 0; i < at.tokens - plan.num_tokens(); ++i) {
    token_rows[i] = plan.num_tokens() + i;
    rows[i] = {};
  }
  if (!changes_.empty()) std::memcpy(at_host_ + at.changes, changes_.data(), changes_.size() * sizeof(sample::LogitChange));
}

std::string PlanMemory::describe() const {
  const auto* query_begin = reinterpret_cast<const int32_t*>(at_host_ + query_begin_);
  const auto* kv_len = reinterpret_cast<const int32_t*>(at_host_ + kv_len_);
  const int S = view_.batch.num_sequences;
  std::string out = "step " + std::to_string(step_) + ": " + std::to_string(view_.batch.num_tokens) + " tokens, " + std::to_string(S) +
                    " sequences, " + std::to_string(view_.num_rows) + " rows, " + std::to_string(used_) + " bytes; tokens/length";
  for (int s = 0; s < S; ++s) out += " " + std::to_string(query_begin[s + 1] - query_begin[s]) + "/" + std::to_string(kv_len[s]);
  return out;
}

void PlanMemory::send(kernels::Context* context) const {
  if (!kernels_->host_memory) kernels_->prefetch(context, at_device_, at_host_, used_);
}

}  // namespace sluice::exec
