// Sequence: one sample of one request as the scheduler sees it. cached <= computed <= known, and, counting plans in flight as
// done, computed <= scheduled <= expected. Engine thread only.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_index.h"
#include "sched/request.h"
#include "text/stop_matcher.h"

namespace sluice::sched {

// What the samples of one request share.
struct Sequence;
struct Request {
  Submission submission;
  std::vector<TokenId> stop_tokens;    // end of generation (unless ignored) and the request's own
  std::vector<TokenId> banned_early;   // never sampled before min_tokens: all of the above
  std::vector<Sequence*> samples;      // those that live
  int open_choices = 0;
  bool cancelled = false, expired = false;
  bool begun = false;                  // a step has taken it
};

struct Sequence {
  std::shared_ptr<Request> request;
  sample::SamplingParams sampling;     // with this sample's choice index
  uint64_t order = 0;                  // arrival
  TimeUs due_us = 0;                   // when its first token is wanted: within a class, who is due first is served first
  std::vector<TokenId> tokens;         // known: prompt and output
  int prompt_tokens = 0;
  int computed = 0;                    // tokens whose keys and values are in the cache
  int cached_prompt = 0;               // of the prompt, taken from the prefix cache at first admission
  // Of plans in flight: their tokens of this sequence, the tokens they draw, the row of the latest that draws one.
  int planned = 0, drawing = 0, drawing_row = 0;
  // Guesses at what comes after the known tokens, for the next plan; of the plan in flight, so many are verified. drafted and
  // accepted: in all.
  std::vector<TokenId> drafts;
  std::vector<std::vector<float>> draft_distributions;  // what drafts were drawn from; empty: guesses without one
  int drafting = 0, drafted = 0, accepted = 0;
  bool waits_for_drafts = false;       // no plan made ahead draws for it: the host proposes in between
  uint64_t last_step = 0;              // the latest that advanced it
  int flights = 0;                     // plans in flight that name this sequence
  std::vector<kv::BlockId> blocks;     // block i holds positions [i * block_tokens, ...)
  std::vector<kv::PrefixKey> keys;     // of the full blocks known to the index, from the root on
  std::vector<kv::BlockId> swapped;    // while it waits: where its computed tokens are kept, and how many they are
  int swapped_tokens = 0;
  size_t index = 0;                    // among the scheduler's sequences
  Sequence* leader = nullptr;          // sample 0 of the same request while it lives: its prompt blocks are shared
  text::StopMatcher stops{{}};
  int prompt_scored = 0;               // prompt positions whose log-probability has been reported
  bool running = false, admitted_once = false;
  TimeUs admitted_us = 0, first_token_us = 0, last_token_us = 0;

  int known() const { return int(tokens.size()); }
  int generated() const { return known() - prompt_tokens; }
  int scheduled() const { return computed + planned; }
  int expected() const { return known() + drawing; }
  // Whether a token that is still being drawn must be known before the next can be: penalties count it.
  bool draws_from_history() const {
    return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  }
  RequestClass request_class() const { return request->submission.request_class; }
  // True when this one is served before the other.
  bool before(const Sequence& other) const {
    if (request_class() != other.request_class()) return request_class() < other.request_class();
    return due_us != other.due_us ? due_us < other.due_us : order < other.order;
  }
};

}  // namespace sluice::sched
