// A Trial: one configuration of a loaded model, its engines alive (one a pool), on which a list of requests can be run again and again, in this
// process and without HTTP. What two configurations are compared by.
// Threads: the caller's, one run at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "lab/pools.h"
#include "lab/user_requests.h"
#include "lab/workload.h"

namespace sluice::lab {

// How requests arrive.
struct TrialLoad {
  std::vector<UserRequest> requests;
  // Of interactive ones, a second, Poisson, from the seed; 0: all at once, or as the requests' at_s say. Batch work is there from
  // the beginning.
  double rate = 0;
  uint64_t seed = 1;
};

struct TrialFigures {
  int requests = 0;
  double duration_s = 0, output_tok_s = 0;
  double batch_tok_s = 0;        // of it, of batch class
  // Of interactive requests, where there are any.
  Percentiles ttft_ms, tpot_ms, gap_ms, e2e_ms;
};

class Trial {
 public:
  // step_cost: what is known of steps, or empty. Errors: kUnavailable, no room.
  static Result<std::unique_ptr<Trial>> start(std::vector<LoadedPool> pools, const std::vector<double>& step_cost);
  // Errors: kContextLength when a request can never fit, what the engine says when it failed.
  Result<TrialFigures> run(const TrialLoad& load);
  // What the first engine has learned of steps; ends all.
  std::vector<double> stop();

 private:
  Trial() = default;
  struct Running {
    LoadedPool pool;
    std::unique_ptr<engine::Engine> engine;
  };
  Running& pool_of(const UserRequest& request);
  SteadyClock clock_;
  uint64_t runs_ = 0;
  std::shared_ptr<std::vector<double>> learned_ = std::make_shared<std::vector<double>>();
  std::vector<Running> running_;
};

// Two trials in turns on the same requests.
struct Comparison {
  TrialFigures before, after;            // of the runs in the middle
  std::vector<double> ratios;            // of each pair's scores, after over before
  double noise = 0;                      // how far the runs of `before` differ from their middle
  double middle() const;
  double least() const;
  double most() const;
  bool better() const;                   // in every pair, and beyond the noise
};
// score: larger is better. A first pair that leaves no hope is the last. Errors: as Trial::run.
Result<Comparison> compare_trials(Trial& before, Trial& after, const TrialLoad& load, int pairs, const std::function<double(const TrialFigures&)>& score);

}  // namespace sluice::lab
