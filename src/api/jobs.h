// Jobs: the store behind the API: a thread of its own for what endpoints ask of it, since a store may block, and the runner of
// its batches. Owned by the service.
#pragma once
#include <functional>
#include <memory>
#include <thread>

#include "api/batch_runner.h"
#include "api/endpoint.h"
#include "base/queue.h"
#include "store/job_store.h"

namespace sluice::api {

class Jobs {
 public:
  Jobs(std::shared_ptr<Context> context, std::unique_ptr<store::JobStore> store, BatchOptions options);
  ~Jobs();                     // tasks that wait are dropped, what they hold is freed

  // Runs the task on the store's thread, after those before it. False when too many wait. Any thread.
  using Task = std::function<void(store::JobStore&)>;
  bool post(Task task);
  void notify() { runner_->notify(); }

 private:
  void run();

  std::unique_ptr<store::JobStore> store_;
  std::unique_ptr<BatchRunner> runner_;
  BoundedQueue<Task> tasks_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The answer that `make` gives on the store's thread. Errors: kUnsupported when there is no store, kOverloaded.
using StoreHandler = std::function<std::unique_ptr<http::Exchange>(Call& call, store::JobStore& store)>;
std::unique_ptr<http::Exchange> answer_from_store(Call&& call, StoreHandler make);

// A file's content, read a piece at a time as fast as the client takes it.
std::unique_ptr<http::Exchange> file_content(const Call& call, const store::File& file);

}  // namespace sluice::api
