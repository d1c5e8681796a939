#include "api/event_queue.h"

namespace sluice::api {
namespace {

class Sink final : public sched::ResponseSink {
 public:
  Sink(std::shared_ptr<EventQueue> queue, size_t prompt) : queue_(std::move(queue)), prompt_(prompt) {}
  void push(sched::TokenEvent&& event) noexcept override { queue_->push(prompt_, std::move(event)); }

 private:
  std::shared_ptr<EventQueue> queue_;
  size_t prompt_;
};

}  // namespace

void EventQueue::push(size_t prompt, sched::TokenEvent&& event) noexcept {
  std::shared_ptr<const std::function<void()>> wake;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (items_.empty()) wake = wake_;  // a queue that holds something was announced already
    items_.push_back({prompt, std::move(event)});
  }
  if (wake) (*wake)();
}

void EventQueue::set_wake(std::function<void()> wake) {
  auto shared = std::make_shared<const std::function<void()>>(std::move(wake));
  std::lock_guard lock(mutex_);
  wake_ = std::move(shared);
}

std::vector<EventQueue::Item> EventQueue::take() {
  std::vector<Item> out;
  std::lock_guard lock(mutex_);
  out.swap(items_);
  return out;
}

void EventQueue::close() noexcept {
  std::vector<Item> dropped;
  std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(items_);
}

std::shared_ptr<sched::ResponseSink> sink_into(std::shared_ptr<EventQueue> queue, size_t prompt) {
  return std::make_shared<Sink>(std::move(queue), prompt);
}

}  // namespace sluice::api
