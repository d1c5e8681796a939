// EventQueue: TokenEvents of all submissions of one HTTP request, from the engine thread to the connection's.
// push: engine thread; everything else: connection thread. Grows as tokens come; bounded by max_tokens of the request.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "sched/request.h"

namespace sluice::api {

class EventQueue {
 public:
  struct Item {
    size_t prompt = 0;                 // which submission of the request
    sched::TokenEvent event;
  };

  void push(size_t prompt, sched::TokenEvent&& event) noexcept;
  // From here on a push into an empty queue calls wake, outside the lock. The caller looks once itself afterwards.
  void set_wake(std::function<void()> wake);
  std::vector<Item> take();
  // Drops what is queued and all that comes.
  void close() noexcept;

 private:
  std::mutex mutex_;
  std::vector<Item> items_;
  std::shared_ptr<const std::function<void()>> wake_;
  bool closed_ = false;
};

// The sink that one submission gets.
std::shared_ptr<sched::ResponseSink> sink_into(std::shared_ptr<EventQueue> queue, size_t prompt);

}  // namespace sluice::api
