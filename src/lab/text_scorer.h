// TextScorer: how well a model predicts a text, token by token, and how far its predictions are from a reference's. The two run in
// lock-step over the same tokens, on the executor that serves, so that what is judged - weights, cache type, kernels - is what a
// server would run, and no logits are ever stored: a tile of rows of both exists at a time.
// One thread; the executors' workers share the arithmetic over the vocabulary.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "exec/device_executor.h"
#include "lab/loaded_model.h"

namespace sluice::lab {

// Of one token given those before it. Nats.
struct TokenScore {
  double nll = 0;            // -log p(token)
  double reference_nll = 0;  // these need a reference
  double kl = 0;             // sum over tokens of p_ref * log(p_ref / p); over those that both vocabularies have
  bool same_top = true;      // both have the same most likely token
  bool is_top = false;       // the token itself was the model's most likely
  bool is_reference_top = false;
};

// Of a row of logits against the reference's (null: none), over `vocab` tokens; 0 <= target < vocab.
TokenScore score_row(const float* logits, const float* reference, int vocab, int target);

class TextScorer {
 public:
  // reference: null where there is none. others: models that are scored beside the model, against the same reference, which is run once for
  // all; each with the reference's size of blocks. Errors: kUnavailable, the device has no room; kUnsupported where two vocabularies differ,
  // naming a token.
  static Result<std::unique_ptr<TextScorer>> make(const LoadedModel& model, const LoadedModel* reference, std::span<const LoadedModel> others = {});

  // Tokens as one sequence in an empty cache; scores of tokens[first..] in order, 1 <= first, are added to `out`. Errors:
  // kContextLength where the text is longer than max_tokens(), and device faults. others: the same of each of make's others, which are
  // not run where it is empty.
  Status score(std::span<const int32_t> tokens, int first, std::vector<TokenScore>& out, std::span<std::vector<TokenScore>> others = {});
  int max_tokens() const { return max_tokens_; }
  bool has_reference() const { return reference_.executor != nullptr; }

 private:
  struct Lane {
    std::unique_ptr<exec::DeviceExecutor> executor;
    int vocab = 0;
  };
  TextScorer() = default;
  void make_plan(std::span<const int32_t> tokens, int begin, int end, int first);
  Status add_lane(const LoadedModel& model, Lane& lane);
  Status score_rows(std::vector<TokenScore>& out, std::span<std::vector<TokenScore>> others);
  Status score_tile(const Lane& lane, const float* reference, int begin, int count, std::vector<TokenScore>& out);

  Lane model_, reference_;
  std::vector<Lane> others_;
  int max_tokens_ = 0, step_tokens_ = 0, tile_ = 0;
  sched::BatchPlan plan_;
};

}  // namespace sluice::lab
