// Stats: counters, gauges and histograms of one engine, written by the engine thread (and the edge's counters by any
// thread), read by /metrics at any time. Lock-free: every cell is a relaxed atomic.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "draft/speculator.h"

namespace sluice::engine {

// A Prometheus histogram with fixed upper bounds; observe() and reads from any thread.
class Histogram {
 public:
  static constexpr int kMaxBuckets = 24;
  explicit Histogram(std::span<const double> bounds);
  void observe(double value) noexcept;
  std::span<const double> bounds() const { return bounds_; }
  uint64_t bucket(size_t i) const { return buckets_[i].load(std::memory_order_relaxed); }  // i == bounds().size(): +Inf
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::span<const double> bounds_;
  std::array<std::atomic<uint64_t>, kMaxBuckets + 1> buckets_{};
  std::atomic<uint64_t> count_{0};
  std::atomic<double> sum_{0};
};

struct Stats {
  Stats();
  // counters
  std::atomic<uint64_t> prompt_tokens{0}, generated_tokens{0}, prefix_query_tokens{0}, prefix_hit_tokens{0},
      preemptions{0}, swaps{0}, steps{0}, finished_stop{0}, finished_length{0}, finished_cancelled{0}, finished_error{0}, rejected{0}, expired{0},
      targets_met{0}, targets_missed{0}, ttft_missed{0}, tpot_missed{0};  // targets: of finished sequences that had any
  // gauges
  std::atomic<int64_t> running{0}, waiting{0}, waiting_tokens{0}, blocks_total{0}, blocks_free{0}, blocks_held{0}, blocks_cached{0},
      kv_key_bytes{0}, kv_value_bytes{0}, kv_scale_bytes{0};  // a token
  // Largest over all steps of (allocated slots - live tokens) / sequences, in tokens; and running sums for a mean waste.
  std::atomic<int64_t> max_waste_tokens_per_sequence{0};
  std::atomic<uint64_t> allocated_slot_steps{0}, live_token_steps{0};
  std::atomic<double> step_error_p90{0};  // of a step's predicted time, relative, over recent steps
  const draft::DraftCounters* drafts = nullptr;  // null: no speculation
  std::atomic<double> drain_per_s{0};     // requests that leave the queue a second, lately; 0: none did
  // seconds
  Histogram time_to_first_token, time_per_output_token, end_to_end, queue_time;
};

}  // namespace sluice::engine
