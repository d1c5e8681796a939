// Scheduler: the only mutator of sequences and blocks. Pure: no I/O, no clock (time comes in), no device. Each step:
// plan(now) -> BatchPlan, an executor runs it, commit(result, now) -> events. One thread.
//
// Running ahead: a second plan can be made while the first is in flight. It counts on what the first will do; a token not drawn
// yet is named by its row (BatchPlan). It never preempts: when room must be made it is empty until the first is committed. A
// sequence that ends with a plan in flight keeps its blocks until that one is committed, and its row there means nothing.
//
// There are no phases: a step advances each sequence's `computed` towards its `known` tokens - by one for a decode, by a
// chunk for a prompt, by everything again after a preemption - within a budget of tokens and, while interactive requests are
// there, of time: StepCost says what a chunk would cost. Batch work then fills what room they leave (batch_room below).
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
#include "sched/shares.h"
#include "sched/step_cost.h"
#include "text/tokenizer.h"

namespace sluice::sched {

struct SchedulerOptions {
  int total_blocks = 0;
  int block_tokens = 16;        // a multiple of 16, 16..256
  // Tokens whose keys the cache rounds together once the last of them is written, 1 or 16: what may be written over is never a group's
  // last, and a sequence goes on from where another one was at a group's start alone.
  int group_tokens = 1;
  int max_sequences = 64;       // running at once
  int max_step_tokens = 512;    // a step's budget; at least max_sequences
  // Tokens that a step has room for at the price of the last of them, since products are made of tiles: where a prompt is cut, it is cut so that
  // the step's tokens are a multiple of this, unless much of it would have to wait. 1: anywhere.
  int tile_tokens = 1;
  // What a step may come to: so many microseconds (0: no such bound); and, while interactive requests are there, so much longer
  // than its interactive decodes alone would be, where there are any, or at least prompt_us (below 0: no such bound). With neither, prompts are
  // bound by max_step_tokens alone. Where every interactive sequence that decodes told how far apart it wants its tokens (tpot_target_us),
  // the nearest of these stands in the place of both. prompt_room grows while an interactive prompt waits for its first token
  // for much longer than it would take alone, and no more requests ask than may run.
  TimeUs step_us = 0;
  double prompt_room = -1;
  TimeUs prompt_us = 0;
  double batch_room = 0.2;      // by how much batch work may lengthen a step that has interactive work, over that work alone
  // Blocks of other memory that preempted sequences may keep (their ids follow the cache's), and what moving one takes, there or
  // back: it is done where computing them again would take longer.
  int swap_blocks = 0;
  double swap_block_us = 0;
  int max_context = 0;          // tokens a sequence may reach
  int vocab = 0;
  bool prefix_cache = true;
  bool rejection = false;       // drafts are verified by rejection (sample/rejection.h), not by coupled sampling: texts then depend on them
};

struct Delivery {
  std::shared_ptr<ResponseSink> sink;
  TokenEvent event;
};

// Times of one finished choice, for metrics.
struct Finished {
  uint64_t request_id = 0;
  TimeUs arrived_us = 0, admitted_us = 0, first_token_us = 0, finished_us = 0;
  int prompt_tokens = 0, generated_tokens = 0;
  uint64_t sequence = 0;      // DraftSlot::sequence
  FinishReason reason = FinishReason::kNone;
  bool last_choice = false;   // its request is over
  TimeUs ttft_target_us = 0, tpot_target_us = 0;
};

// Drafts of one sequence that a step verified.
struct Verified {
  uint64_t sequence = 0;      // DraftSlot::sequence
  int drafted = 0, accepted = 0;
  bool cut = false;           // the sequence ended in them: those behind the accepted ones were not looked at
};

// A running sequence as those who propose drafts see it. Holds until the next plan.
struct DraftSlot {
  uint64_t sequence = 0;      // unique
  RequestClass request_class{};
  uint64_t share_key = 0, cache_salt = 0;
  std::span<const TokenId> history;  // known
  int prompt_tokens = 0, computed = 0;
  int limit = 0;              // drafts at most; 0: none can be used now
  bool excluded = false;      // nor ever: not worth following its prompt
  bool ready = false;         // its next step draws, and no plan in flight does
  bool soon = false;          // it would be, but for the plan in flight that draws
  const sample::SamplingParams* sampling = nullptr;
  std::span<const TokenId> banned;   // never drawn for the first min_left tokens
  int min_left = 0;
};

// Kept by the caller from step to step and cleared, not freed: a steady state allocates nothing.
struct StepOutcome {
  std::vector<Delivery> deliveries;
  std::vector<Finished> finished;
  std::vector<TimeUs> first_token_waits_us;   // arrival to first token, of choices that just had theirs
  std::vector<TimeUs> queue_waits_us;         // arrival to first admission
  std::vector<Verified> verified;
  StepShape shape;                            // of the step, as planned
  int computed_prompt_tokens = 0, generated_tokens = 0;
  int expired = 0;            // requests that waited too long

  void clear() {
    deliveries.clear();
    finished.clear();
    first_token_waits_us.clear();
    queue_waits_us.clear();
    verified.clear();
    shape = {};
    computed_prompt_tokens = generated_tokens = expired = 0;
  }
};

struct Counters {
  uint64_t preemptions = 0, prefix_query_tokens = 0, prefix_hit_tokens = 0, steps = 0, begun = 0, swaps = 0;  // begun: requests
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
  // Ends every request whose cancelled flag is set, and those that no step has taken in their queue_timeout. Returns how many.
  int reap_cancelled(TimeUs now, StepOutcome& outcome);
  // Ends everything with an error (a device fault, a shutdown).
  void fail_all(const Error& error, StepOutcome& outcome);

  // Speculation, before a plan: the running sequences, and drafts for one of them (by its place in draft_slots()). A plan takes
  // as many as budget, time and free blocks leave when everything else has its share, and verifies them in the same step. waits:
  // until told otherwise, plans made ahead leave the sequence out, so that it can be proposed for. Tokens beyond the vocabulary,
  // and what comes after them, are dropped. distributions: what each was drawn from [drafts][vocab], for rejection; empty: guesses.
  std::span<const DraftSlot> draft_slots();
  void put_drafts(size_t slot, std::span<const TokenId> drafts, bool waits, std::vector<std::vector<float>> distributions = {});

  // The next step, in flight until its commit; holds until then. Empty: nothing can be done now (and nothing is in flight for
  // it). At most kMaxFlights.
  const BatchPlan& plan(TimeUs now);
  // The result of the oldest plan in flight. Decides stops, limits and finishes; what follows is added to the outcome. took_us:
  // how long the step ran, for StepCost; 0: not measured.
  void commit(const StepResult& result, TimeUs now, TimeUs took_us, StepOutcome& outcome);
  int num_in_flight() const { return num_flights_; }
  static constexpr int kMaxFlights = 2;

  bool idle() const { return running_.empty() && waiting_.empty(); }
  int num_running() const { return int(running_.size()); }
  int num_waiting() const { return int(waiting_.size()); }
  int64_t waiting_tokens() const { return waiting_tokens_; }  // of prompts that no step has taken
  const kv::BlockPool& pool() const { return pool_; }
  const Counters& counters() const { return counters_; }
  const SchedulerOptions& options() const { return options_; }
  StepCost& cost() { return cost_; }
  // Token slots in the running sequences' blocks, and tokens computed into them: their difference is waste.
  void usage(int64_t* allocated_slots, int64_t* live_tokens) const;
  void validate() const;  // every invariant; aborts on a breach

 private:
  struct Work { Sequence* sequence; int count, drafts = 0; };  // drafts: the last of the count
  struct Flight {
    BatchPlan plan;
    std::vector<Work> work;
    StepShape shape;
  };
  struct ByRank { bool operator()(const Sequence* a, const Sequence* b) const; };

  Flight& flight(int i) { return flights_[(first_flight_ + i) % kMaxFlights]; }
  bool running_fits() const;                       // what running sequences need of this step, without preemption
  int wanted_tokens(const Sequence* s) const;      // that could go into this step
  void advance(Sequence* s);                       // gives s as many tokens of this step as budget, time and blocks allow
  int fitting(const Sequence* s, int count) const; // of `count` tokens of s, how many the step's time has room for
  int whole_tiles(int count) const;                // of `count` tokens of a prompt that is cut there, how many fill the step's tiles
  void advance_running();
  void note_late_prompts(TimeUs now);
  bool more_than_places() const;
  void note_decodes();                             // what those in the plan so far come to, and want
  TimeUs expiry_of(const Request& r) const;
  bool expire(TimeUs now);                         // marks those whose time is over; whether there were any
  void admit_waiting(TimeUs now);
  Sequence* next_waiting() const;                  // of the best class, of the key served least, the first; null: none may start
  bool try_start(Sequence* s, TimeUs now);
  int reuse_prefix(Sequence* s);                   // shares cached blocks; returns tokens covered
  bool fork_from_leader(Sequence* s);
  bool allocate(Sequence* s);                      // one more block for s
  Sequence* victim_below(const Sequence* s) const; // lowest-ranked running sequence that s may displace
  void preempt(Sequence* s);
  void release_blocks(Sequence* s);
  bool worth_swapping(const Sequence* s) const;
  void swap_out(Sequence* s);
  void swap_in(Sequence* s);
  void drop_swapped(Sequence* s);
  void undo_copies();
  void add_shape(const Work& w);
  void build_plan();
  void add_draws(Sequence* s, int index, int drafts);
  void add_drafts();                               // to the plan in hand, from what is left of the step
  int64_t room_for_tokens(const Sequence* s) const;
  int draft_limit(const Sequence* s) const;
  int room_for_drafts(Work& w, int count);         // of `count` drafts, how many time and blocks allow; takes the blocks
  void index_full_blocks(Sequence* s);
  // Both false: s has ended.
  bool take_token(Sequence* s, const sample::SampledToken& token, TimeUs now, StepOutcome& outcome);
  bool take_draws(Sequence* s, int drafts, std::span<const sample::SampledToken> drawn, TimeUs now, StepOutcome& outcome);
  void report_prompt_score(Sequence* s, const sample::SampledToken& token, StepOutcome& outcome);
  void finish(Sequence* s, TokenEvent event, TimeUs now, StepOutcome& outcome);
  std::string_view bytes_of(TokenId token, bool keep_special) const;
  void forget(Sequence* s);
  void land(Sequence* s);                          // one flight fewer; an ended one's last frees its blocks

  SchedulerOptions options_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  kv::BlockPool pool_;
  kv::PrefixIndex index_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<kv::BlockId> swap_free_;             // places for blocks of preempted sequences
  std::vector<Sequence*> running_;                 // by rank
  std::vector<Sequence*> order_;                   // in which they advance
  std::set<Sequence*, ByRank> waiting_;
  std::vector<DraftSlot> slots_;                   // as running_
  // Ended while a plan that names them is in flight: they hold their blocks, no more.
  std::vector<std::unique_ptr<Sequence>> ended_;
  Flight flights_[kMaxFlights];                    // a ring
  int first_flight_ = 0, num_flights_ = 0;
  Flight* making_ = &flights_[0];                  // the plan in hand
  int budget_ = 0;
  StepCost cost_;
  Shares shares_;
  // Of the plan in hand: whether interactive requests run or wait; what those in it come to; which classes' time is used up; and
  // whether a prompt of interactive class, or anything of batch class, is in it.
  bool interactive_here_ = false;
  StepShape interactive_shape_;
  double decodes_us_ = 0;                          // predicted, of the interactive decodes in it
  double more_room_ = 1;                           // so many times prompt_room, for late prompts
  TimeUs wanted_us_ = 0;                           // the nearest tpot target of those; 0 unless each has one
  bool full_[2] = {}, moved_[2] = {};
  bool wants_room_ = false;                        // somebody waits for a preemption: do not run ahead
  uint64_t next_order_ = 0;
  int64_t waiting_tokens_ = 0;
  TimeUs next_expiry_us_;                          // no request expires before
  Counters counters_;
};

}  // namespace sluice::sched
