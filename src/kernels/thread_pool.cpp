#include "kernels/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <system_error>

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

constexpr uint32_t unclaimed(uint64_t ticket) { return uint32_t(ticket); }
constexpr uint64_t epoch(uint64_t ticket) { return ticket >> 32; }

// The index-th core of this process's set, or -1.
int allowed_cpu(int index) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set) && index-- == 0) return cpu;
  return -1;
}

}  // namespace

ThreadPool::ThreadPool(int threads, bool pin) {
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
  ticket_.store((epoch(ticket_.load()) + 1) << 32);
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
  // The last job is over (all of its tasks are done), so no claim can succeed until the new ticket is out.
  task_.store(task, std::memory_order_relaxed);
  arg_.store(arg, std::memory_order_relaxed);
  count_.store(uint32_t(count), std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint64_t ticket = (epoch(ticket_.load(std::memory_order_relaxed)) + 1) << 32 | uint32_t(count);
  ticket_.store(ticket);  // sequentially consistent against sleepers_: a worker sees this or is seen asleep
  if (sleepers_.load() != 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  while (work_on(ticket, 0)) {
  }
  wait_for_done(uint32_t(count));
}

// Claims and runs one task of the ticket's job; false when it has none left.
bool ThreadPool::work_on(uint64_t ticket, int worker) noexcept {
  const Task task = task_.load(std::memory_order_relaxed);
  void* const arg = arg_.load(std::memory_order_relaxed);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  uint64_t now = ticket_.load(std::memory_order_acquire);
  do {
    if (epoch(now) != epoch(ticket) || unclaimed(now) == 0) return false;
  } while (!ticket_.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  // The job was still open when the claim succeeded, so the fields read above are its own.
  task(arg, int(count - unclaimed(now)), worker);
  if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) done_.notify_one();
  return true;
}

void ThreadPool::wait_for_done(uint32_t count) noexcept {
  if (spin_until([&] { return done_.load(std::memory_order_acquire) == count; })) return;
  for (uint32_t seen; (seen = done_.load(std::memory_order_acquire)) != count;) done_.wait(seen, std::memory_order_acquire);
}

uint64_t ThreadPool::wait_for_ticket(uint64_t seen) noexcept {
  uint64_t now = seen;
  const auto changed = [&] { return epoch(now = ticket_.load(std::memory_order_acquire)) != epoch(seen); };
  while (!spin_until(changed)) {
    sleepers_.fetch_add(1);
    const uint32_t wake = wake_.load();
    if (epoch(ticket_.load()) == epoch(seen)) wake_.wait(wake);
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
  for (uint64_t seen = 0;;) {
    seen = wait_for_ticket(seen);
    if (stop_.load(std::memory_order_acquire)) return;
    while (work_on(seen, worker)) {
    }
  }
}

}  // namespace sluice::kernels
