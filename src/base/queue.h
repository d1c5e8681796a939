// Queues between threads. BoundedQueue: many producers, one consumer, a fixed limit; full is an answer, not a wait.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t limit) : limit_(limit) {}

  // False when full or closed; the value is then untouched.
  bool try_push(T&& value) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= limit_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  // Appends everything queued to out; waits up to `wait` when empty (0: does not wait).
  void drain(std::vector<T>& out, std::chrono::microseconds wait) {
    std::unique_lock lock(mutex_);
    if (items_.empty() && !poked_ && wait.count() > 0)
      ready_.wait_for(lock, wait, [&] { return !items_.empty() || closed_ || poked_; });
    poked_ = false;
    for (auto& item : items_) out.push_back(std::move(item));
    items_.clear();
  }

  // Wakes the consumer without an item (a cancellation flag was set, say).
  void poke() {
    { std::lock_guard lock(mutex_); poked_ = true; }
    ready_.notify_one();
  }
  void close() {
    { std::lock_guard lock(mutex_); closed_ = true; }
    ready_.notify_all();
  }
  size_t size() const { std::lock_guard lock(mutex_); return items_.size(); }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  size_t limit_;
  bool closed_ = false, poked_ = false;
};

}  // namespace sluice
