// Scheduler: the only mutator of sequences and blocks. Pure: no I/O, no clock (time comes in), no device. Each step:
// plan(now) -> BatchPlan, an executor runs it, commit(result, now) -> events. One thread.
//
// There are no phases: a step advances each sequence's `computed` towards its `known` tokens - by one for a decode, by a
// chunk for a prompt, by everything again after a preemption - within a budget of tokens.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_index.h"
#include "sched/batch_plan.h"
#include "sched/request.h"
#include "sched/sequence.h"
#include "text/tokenizer.h"

namespace sluice::sched {

struct SchedulerOptions {
  int total_blocks = 0;
  int block_tokens = 16;        // a multiple of 16, 16..256
  int max_sequences = 64;       // running at once
  int max_step_tokens = 512;    // a step's budget; at least max_sequences
  int max_context = 0;          // tokens a sequence may reach
  int vocab = 0;
  bool prefix_cache = true;
};

struct Delivery {
  std::shared_ptr<ResponseSink> sink;
  TokenEvent event;
};

// Times of one finished choice, for metrics.
struct Finished {
  TimeUs arrived_us = 0, admitted_us = 0, first_token_us = 0, finished_us = 0;
  int prompt_tokens = 0, generated_tokens = 0;
  FinishReason reason = FinishReason::kNone;
  bool last_choice = false;   // its request is over
};

struct StepOutcome {
  std::vector<Delivery> deliveries;
  std::vector<Finished> finished;
  std::vector<TimeUs> first_token_waits_us;   // arrival to first token, of choices that just had theirs
  std::vector<TimeUs> queue_waits_us;         // arrival to first admission
  int computed_prompt_tokens = 0, generated_tokens = 0;
};

struct Counters {
  uint64_t preemptions = 0, prefix_query_tokens = 0, prefix_hit_tokens = 0, steps = 0;
};

class Scheduler {
 public:
  // tokenizer may be null: no text, no stop strings, no end tokens (simulation).
  Scheduler(SchedulerOptions options, std::shared_ptr<const text::Tokenizer> tokenizer);
  ~Scheduler();

  // kContextLength when the request can never fit the cache or the context. Pure in the options: any thread.
  static Status fits(const SchedulerOptions& options, int64_t prompt_tokens, int64_t max_tokens);

  // Takes a request (fits() holds) and queues its samples.
  void admit(Submission submission);
  // Marks every request whose cancelled flag is set; their sequences end here. Returns how many requests ended.
  int reap_cancelled(TimeUs now, StepOutcome& outcome);
  // Ends everything with an error (a device fault, a shutdown).
  void fail_all(const Error& error, StepOutcome& outcome);

  const BatchPlan& plan(TimeUs now);
  // The result of the last plan. Decides stops, limits and finishes.
  StepOutcome commit(const StepResult& result, TimeUs now);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  int num_running() const { return int(running_.size()); }
  int num_waiting() const { return int(waiting_.size()); }
  const kv::BlockPool& pool() const { return pool_; }
  const Counters& counters() const { return counters_; }
  const SchedulerOptions& options() const { return options_; }
  // Token slots in the running sequences' blocks, and tokens computed into them: their difference is waste.
  void usage(int64_t* allocated_slots, int64_t* live_tokens) const;
  void validate() const;  // every invariant; aborts on a breach

 private:
  struct Work { Sequence* sequence; int count; };
  struct ByRank { bool operator()(const Sequence* a, const Sequence* b) const; };

  void advance(Sequence* s);                       // gives s as many tokens of this step as budget and blocks allow
  void admit_waiting(TimeUs now);
  bool try_start(Sequence* s, TimeUs now);
  int reuse_prefix(Sequence* s);                   // shares cached blocks; returns tokens covered
  bool fork_from_leader(Sequence* s);
  bool allocate(Sequence* s);                      // one more block for s
  Sequence* victim_below(const Sequence* s) const; // lowest-ranked running sequence that s may displace
  void preempt(Sequence* s);
  void release_blocks(Sequence* s);
  void build_plan();
  void index_full_blocks(Sequence* s);
  void take_token(Sequence* s, const sample::SampledToken& token, TimeUs now, StepOutcome& outcome);
  void report_prompt_score(Sequence* s, const sample::SampledToken& token, StepOutcome& outcome);
  void finish(Sequence* s, TokenEvent event, TimeUs now, StepOutcome& outcome);
  std::string_view bytes_of(TokenId token, bool keep_special) const;
  void forget(Sequence* s);

  SchedulerOptions options_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  kv::BlockPool pool_;
  kv::PrefixIndex index_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_;                 // by rank
  std::set<Sequence*, ByRank> waiting_;
  std::vector<Work> work_;                         // of the plan in hand
  BatchPlan plan_;
  int budget_ = 0;
  bool planned_ = false;
  uint64_t next_order_ = 0;
  Counters counters_;
};

}  // namespace sluice::sched
