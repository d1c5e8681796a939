#include "kernels/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <system_error>

#include "base/long_slice.h"

namespace sluice::kernels {
namespace {

constexpr auto kSpinTime = std::chrono::microseconds(40);
constexpr int kSpinsPerClockRead = 64;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until ready() or the spin time is over; true if ready.
template <class Ready>
bool spin_until(Ready ready) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (ready()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() - start < kSpinTime);
  return false;
}

// A range word: 24 bits of the job's number, 20 of end, 20 of begin.
constexpr uint32_t kJobMask = 0xFFFFFF, kIndexMask = 0xFFFFF;
constexpr uint64_t pack_range(uint32_t job, uint32_t begin, uint32_t end) { return uint64_t(job & kJobMask) << 40 | uint64_t(end) << 20 | begin; }
constexpr uint32_t job_of(uint64_t word) { return uint32_t(word >> 40); }
constexpr uint32_t begin_of(uint64_t word) { return uint32_t(word) & kIndexMask; }
constexpr uint32_t end_of(uint64_t word) { return uint32_t(word >> 20) & kIndexMask; }

// The index-th core of this process's set, or -1.
int allowed_cpu(int index) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set) && index-- == 0) return cpu;
  return -1;
}

}  // namespace

ThreadPool::ThreadPool(int threads, bool pin) : ranges_(size_t(threads > 1 ? threads : 1)) {
  for (int i = 1; i < threads; ++i) {
    const int cpu = pin ? allowed_cpu(i) : -1;
    try {
      threads_.emplace_back([this, i, cpu] { worker_main(i, cpu); });
    } catch (const std::system_error&) {
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  job_.fetch_add(1);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::run(int count, Task task, void* arg) noexcept {
  if (count <= 0) return;
  if (count == 1 || threads_.empty()) {
    for (int i = 0; i < count; ++i) task(arg, i, 0);
    return;
  }
  // The last job is over (all of its tasks are done), so no claim can succeed until the new ranges are out.
  task_.store(task, std::memory_order_relaxed);
  arg_.store(arg, std::memory_order_relaxed);
  count_.store(uint32_t(count), std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t job = job_.load(std::memory_order_relaxed) + 1, workers = uint32_t(size());
  for (uint32_t w = 0; w < workers; ++w)
    ranges_[w].word.store(pack_range(job, uint32_t(uint64_t(count) * w / workers), uint32_t(uint64_t(count) * (w + 1) / workers)),
                          std::memory_order_release);
  job_.store(job);  // sequentially consistent against sleepers_: a worker sees this or is seen asleep
  if (sleepers_.load() != 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  work_on(job, 0);
  wait_for_done(uint32_t(count));
}

// Takes one task of the range if it belongs to the job and has any left.
bool ThreadPool::claim(Range& range, uint32_t job, bool front, int& index) noexcept {
  uint64_t now = range.word.load(std::memory_order_acquire), then;
  do {
    const uint32_t begin = begin_of(now), end = end_of(now);
    if (job_of(now) != (job & kJobMask) || begin == end) return false;
    index = int(front ? begin : end - 1);
    then = front ? pack_range(job, begin + 1, end) : pack_range(job, begin, end - 1);
  } while (!range.word.compare_exchange_weak(now, then, std::memory_order_acq_rel, std::memory_order_acquire));
  return true;
}

// Runs tasks of the job until none is left to claim.
void ThreadPool::work_on(uint32_t job, int worker) noexcept {
  const int workers = size();
  uint32_t done = 0, count = 0;
  for (int k = 0; k < workers; ++k) {
    Range& range = ranges_[size_t((worker + k) % workers)];
    for (int index; claim(range, job, k == 0, index); ++done) {
      // The job was still open when the claim succeeded, so these are its own.
      count = count_.load(std::memory_order_relaxed);
      task_.load(std::memory_order_relaxed)(arg_.load(std::memory_order_relaxed), index, worker);
    }
  }
  if (done > 0 && done_.fetch_add(done, std::memory_order_acq_rel) + done == count) done_.notify_one();
}

void ThreadPool::wait_for_done(uint32_t count) noexcept {
  if (spin_until([&] { return done_.load(std::memory_order_acquire) == count; })) return;
  for (uint32_t seen; (seen = done_.load(std::memory_order_acquire)) != count;) done_.wait(seen, std::memory_order_acquire);
}

uint32_t ThreadPool::wait_for_job(uint32_t seen) noexcept {
  uint32_t now = seen;
  const auto changed = [&] { return (now = job_.load(std::memory_order_acquire)) != seen; };
  while (!spin_until(changed)) {
    sleepers_.fetch_add(1);
    const uint32_t wake = wake_.load();
    if (job_.load() == seen) wake_.wait(wake);
    sleepers_.fetch_sub(1);
  }
  return now;
}

void ThreadPool::worker_main(int worker, int cpu) noexcept {
  if (cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);  // a wish: without it the worker runs where it may
  }
  take_long_slices();
  for (uint32_t seen = 0;;) {
    seen = wait_for_job(seen);
    if (stop_.load(std::memory_order_acquire)) return;
    work_on(seen, worker);
  }
}

}  // namespace sluice::kernels
