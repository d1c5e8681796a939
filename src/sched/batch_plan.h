// BatchPlan: one step as flat arrays; the only thing that crosses from policy to silicon. T tokens, S sequences, B block
// references, L output rows. Vectors are reused from step to step, so a steady state allocates nothing.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "sample/sampling_params.h"

namespace sluice::sched {

// What to do with one row of logits. Pointers are into the scheduler's sequences and hold until commit().
struct OutputRow {
  int32_t token_row = 0;               // index into the step's tokens
  int32_t sequence = 0;                // index into the step's sequences
  bool samples = true;                 // false: score `target` (prompt log-probabilities)
  int32_t target = -1;
  int32_t num_logprobs = -1;           // when scoring
  const sample::SamplingParams* params = nullptr;
  std::span<const int32_t> history;    // known tokens (without one that an earlier step is still drawing)
  std::span<const int32_t> drafts;     // that stand between history and the token to draw
  int64_t position = 0;                // index in the sequence of the token to draw
  int32_t prompt_tokens = 0;
  std::span<const int32_t> banned;
  // Verification by rejection (sample/rejection.h), where the host can read logits: the draft that this row decides on, -1: none; the
  // distribution [V] it was drawn from, null: it was guessed without one. The row then gives the draft, or what stands in its place.
  int32_t verifies = -1;
  const float* proposed = nullptr;
  std::vector<float>* distribution = nullptr;  // gets what the row draws from, [V]
};

// Drafts of one sequence in one step, at most.
constexpr int kMaxDrafts = 16;

struct CopyPair { kv::BlockId from, to; };

struct BatchPlan {
  uint64_t step = 0;
  int block_tokens = 16;
  // [T]. A token id of -1 - r is what row r of the plan before draws: this plan was made while that one runs.
  std::vector<int32_t> token_ids, positions, sequence_of;
  std::vector<int32_t> query_begin;                        // [S+1]
  std::vector<int32_t> kv_len;                             // [S] after this step
  std::vector<int32_t> draft_len;                          // [S] of its tokens, the last so many are drafts; a row more draws
  std::vector<int32_t> block_begin;                        // [S+1]
  std::vector<int32_t> block_ids;                          // [B]
  std::vector<CopyPair> copies;                            // done in order, before anything else
  std::vector<OutputRow> rows;                             // [L]

  int num_tokens() const { return int(token_ids.size()); }
  int num_sequences() const { return int(kv_len.size()); }
  int num_drafts() const;
  bool empty() const { return token_ids.empty(); }
  void clear();
  void reserve(size_t tokens, size_t sequences, size_t blocks);
  // Aborts when the arrays contradict one another or a block is written by two sequences. total_blocks, vocab: bounds.
  // rows_before: output rows of the plan that runs ahead of this one, 0 when none does.
  void validate(int total_blocks, int vocab, int rows_before = 0) const;
  // Of every array: equal schedules hash alike.
  uint64_t hash() const;

 private:
  void validate_drafts(int vocab) const;
};

struct StepResult {
  std::vector<sample::SampledToken> rows;  // [L]
};

}  // namespace sluice::sched
