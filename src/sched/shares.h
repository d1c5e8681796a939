// Shares: who has been served how much, for fairness between keys. Among those that wait, the key that was served least goes
// first; one that comes back after a pause starts level with the least served of those that are here, so that a pause earns
// nothing (virtual token counter; Sheng et al., "Fairness in Serving Large Language Models", arXiv:2401.00588).
// Pure; one thread. Memory: keys that have open requests, and a bounded number of others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace sluice::sched {

class Shares {
 public:
  void open(uint64_t key);   // a request of the key arrived
  void close(uint64_t key);  // and ended
  // Tokens computed of prompts, and generated: a generated one costs its own step and counts twice. weight > 0: of the key's share.
  void charge(uint64_t key, int prompt_tokens, int generated_tokens, double weight = 1) {
    entries_[key].served += (prompt_tokens + 2.0 * generated_tokens) / weight;
  }
  double served(uint64_t key) const;
  // Keys with open requests: with one alone there is nothing to share.
  int num_active() const { return active_; }

 private:
  static constexpr size_t kMaxIdle = 4096;
  struct Entry {
    double served = 0;
    int open = 0;
  };
  double least_active() const;
  std::unordered_map<uint64_t, Entry> entries_;
  int active_ = 0;
};

}  // namespace sluice::sched
