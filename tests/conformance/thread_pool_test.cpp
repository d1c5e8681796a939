#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace sluice::kernels {
namespace {

struct Counts {
  std::vector<int> hits;       // plain ints: the pool itself must order them
  std::atomic<int> bad_worker{0};
  int workers = 0;
};

void count(void* p, int i, int worker) noexcept {
  auto& c = *static_cast<Counts*>(p);
  ++c.hits[size_t(i)];
  if (worker < 0 || worker >= c.workers) ++c.bad_worker;
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads, false);
    ASSERT_EQ(pool.size(), threads);
    Counts c;
    c.workers = threads;
    for (int round = 0; round < 300; ++round) {
      for (int n : {0, 1, 2, 7, 100}) {
        c.hits.assign(size_t(n), 0);
        pool.run(n, count, &c);
        for (int hit : c.hits) ASSERT_EQ(hit, 1);
      }
    }
    EXPECT_EQ(c.bad_worker, 0);
  }
}

TEST(ThreadPool, ResultsOfOneJobAreSeenByTheNext) {
  ThreadPool pool(3, false);
  std::vector<long> values(64, 0);
  struct Step { std::vector<long>* v; int shift; } step{&values, 0};
  for (int round = 0; round < 2000; ++round) {
    step.shift = 1;
    pool.run(64, [](void* p, int i, int) noexcept {
      auto& s = *static_cast<Step*>(p);
      (*s.v)[size_t((i * 7) % 64)] += s.shift;
    }, &step);
  }
  for (long v : values) ASSERT_EQ(v, 2000);
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(2, false);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Counts c;
    c.workers = 2;
    c.hits.assign(50, 0);
    pool.run(50, count, &c);
    for (int hit : c.hits) ASSERT_EQ(hit, 1);
  }
}

TEST(ThreadPool, SlowTaskOfAWorkerIsWaitedFor) {
  ThreadPool pool(2, false);
  std::atomic<int> done{0};
  pool.run(2, [](void* p, int, int) noexcept {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++*static_cast<std::atomic<int>*>(p);
  }, &done);
  EXPECT_EQ(done, 2);
}

TEST(ThreadPool, PinnedPoolWorks) {
  ThreadPool pool(3, true);  // more workers than cores, perhaps: the wish is dropped
  Counts c;
  c.workers = 3;
  c.hits.assign(64, 0);
  pool.run(64, count, &c);
  for (int hit : c.hits) ASSERT_EQ(hit, 1);
}

TEST(ThreadPool, IsMadeAndDroppedQuickly) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4, false);
}

}  // namespace
}  // namespace sluice::kernels
