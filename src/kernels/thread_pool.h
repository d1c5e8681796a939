// A fork-join pool: run() spreads the tasks of one job over the caller (worker 0) and size() - 1 threads.
// Every worker has a range of the tasks and takes them from its front, so that what it reads lies in a row; one that has none
// left takes from the back of another's. A job ends when its tasks are done, not when every worker has looked in: a worker
// whose core is busy with something else holds nothing up unless it is inside a task.
// Idle workers spin for a short while (a barrier between two kernels costs well under a microsecond), then sleep.
// Threads: one run() at a time, no nesting. Errors: none; a thread that cannot be started is done without.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace sluice::kernels {

class ThreadPool {
 public:
  using Task = void (*)(void* arg, int index, int worker) noexcept;

  // pin: worker i > 0 runs on the i-th core that the process may use; the caller stays where its owner put it.
  ThreadPool(int threads, bool pin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return 1 + int(threads_.size()); }
  // task(arg, i, worker) for every i in [0, count), count below 2^20; returns when all have returned.
  void run(int count, Task task, void* arg) noexcept;

 private:
  // Tasks [begin, end) of job `epoch` that nobody has claimed, packed in one word: a compare-and-swap claims a task of exactly
  // the job that the claimer looked at, so a late worker can never run a finished job's task or lose a new one's.
  struct alignas(64) Range { std::atomic<uint64_t> word{0}; };
  bool claim(Range& range, uint32_t job, bool front, int& index) noexcept;

  void worker_main(int worker, int cpu) noexcept;
  void work_on(uint32_t job, int worker) noexcept;
  uint32_t wait_for_job(uint32_t seen) noexcept;
  void wait_for_done(uint32_t count) noexcept;

  std::vector<Range> ranges_;  // one a worker
  alignas(64) std::atomic<uint32_t> job_{0};
  std::atomic<Task> task_{nullptr};
  std::atomic<void*> arg_{nullptr};
  std::atomic<uint32_t> count_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> wake_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace sluice::kernels
