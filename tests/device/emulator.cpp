#include "tests/device/emulator.h"

#include <ucontext.h>

#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/rng.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace sluice::emulator {
namespace {

constexpr size_t kStack = 128 * 1024;
constexpr uint32_t kFirstAddress = 0x430;  // as awkward as a device's may be: a multiple of 16 alone
constexpr int kBlockBits = 24;             // of an address: above is the block's rank and one

struct Group {
  std::vector<std::function<void()>> products;  // not read yet
};

struct Thread {
  ucontext_t context;
  std::unique_ptr<uint8_t[]> stack;
  Place place;
  bool done = false;
  std::function<bool()> ready;  // null: it can go on
  std::deque<Group> committed;
  Group open;
  void* fake_stack = nullptr;
};

// Threads that come to one point and go on together.
struct Meeting {
  int arrived = 0, generation = 0;
};

struct Barrier {
  int arrivals, pending, phase = 0;
  int64_t bytes = 0;
};

struct Block {
  std::vector<uint8_t> shared;
  int running;  // threads
  Meeting all, some;
  std::vector<Meeting> warps;
  std::vector<uint32_t> shuffled;
  std::map<uint32_t, Barrier> barriers;
};

struct Cluster {
  const Launch& launch;
  const std::function<void()>& kernel;
  Rng rng;
  std::vector<Block> blocks;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::function<void()>> pending;  // copies
  Meeting all;
  bool ahead_ended = false;
  Thread* running = nullptr;
  int running_threads = 0;
  ucontext_t scheduler;
  std::string wrong;
  Cluster(const Launch& l, const std::function<void()>& k, uint64_t seed) : launch(l), kernel(k), rng(seed) {}
};
Cluster* g = nullptr;

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error(why); }

void enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  try {
    g->kernel();
  } catch (const std::exception& e) {
    g->wrong = e.what();
  }
  g->running->done = true;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, nullptr, 0);
#endif
  swapcontext(&g->running->context, &g->scheduler);
}

// The running thread lets others run until `ready` (null: for once).
void pause(std::function<bool()> ready) {
  Thread* t = g->running;
  t->ready = std::move(ready);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&t->fake_stack, nullptr, 0);
#endif
  swapcontext(&t->context, &g->scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(t->fake_stack, nullptr, nullptr);
#endif
  t->ready = nullptr;
}

void go_on(Thread* t) {
  g->running = t;
#if defined(__SANITIZE_ADDRESS__)
  void* mine = nullptr;
  __sanitizer_start_switch_fiber(&mine, t->stack.get(), kStack);
#endif
  swapcontext(&g->scheduler, &t->context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#endif
}

void go_on_if(Meeting& m, int of) {
  if (m.arrived == of) m.arrived = 0, ++m.generation;
}
void meet(Meeting& m, int of) {
  const int generation = m.generation;
  ++m.arrived;
  go_on_if(m, of);
  if (m.generation != generation) return;
  pause([&m, generation] { return m.generation != generation; });
}

int rank_of(uint32_t address) { return address >> kBlockBits ? int(address >> kBlockBits) - 1 : g->running->place.block % g->launch.cluster; }
Block& block_of(uint32_t address) { return g->blocks[size_t(rank_of(address))]; }
uint32_t within(uint32_t address) { return address & ((1u << kBlockBits) - 1); }

Barrier& barrier_at(Block& b, uint32_t address) {
  if (b.running == 0) fail("the block of a barrier has ended");
  const auto at = b.barriers.find(within(address));
  if (at == b.barriers.end()) fail("no barrier was begun at " + std::to_string(within(address)));
  return at->second;
}
void advance(Barrier& b) {
  if (b.pending == 0 && b.bytes == 0) b.pending = b.arrivals, ++b.phase;
}

// Apart from what goes on afterwards, since getcontext may return twice.
__attribute__((noinline)) std::unique_ptr<Thread> make_thread(const Place& place) {
  auto t = std::make_unique<Thread>();
  t->place = place;
  t->stack.reset(new uint8_t[kStack]);
  getcontext(&t->context);
  t->context.uc_stack = {t->stack.get(), 0, kStack};
  t->context.uc_link = nullptr;
  makecontext(&t->context, enter, 0);
  return t;
}

void run_cluster(Cluster& c, int first) {
  const Launch& l = c.launch;
  c.blocks.resize(size_t(l.cluster));
  for (Block& b : c.blocks) {
    b.shared.resize(kFirstAddress + l.shared);
    for (uint8_t& v : b.shared) v = uint8_t(c.rng.next_u32());
    b.running = l.threads;
    b.warps.resize(size_t(l.threads) / 32);
    b.shuffled.resize(size_t(l.threads));
  }
  for (int i = 0; i < l.cluster * l.threads; ++i) c.threads.push_back(make_thread({i % l.threads, l.threads, first + i / l.threads, l.blocks}));
  const auto end_ahead = [&] { l.ahead_ends(), c.ahead_ended = true; };
  uint32_t ahead_runs = c.rng.below(10 * uint32_t(c.threads.size()));  // turns, or until all wait for it
  c.ahead_ended = !l.ahead_ends || first > 0;
  g = &c;
  int& left = c.running_threads = int(c.threads.size());
  // A copy's faults are found when it is done, by no thread.
  const auto do_pending = [&](size_t i) {
    const auto something = std::move(c.pending[i]);
    c.pending.erase(c.pending.begin() + std::ptrdiff_t(i));
    try {
      something();
    } catch (const std::exception& e) {
      c.wrong = e.what();
    }
  };
  while (left > 0 && c.wrong.empty()) {
    if (!c.ahead_ended && ahead_runs-- == 0) end_ahead();
    // Copies come late as often as not: each has the chance of a warp.
    if (!c.pending.empty() && c.rng.below(8) == 0) {
      do_pending(c.rng.below(uint32_t(c.pending.size())));
      continue;
    }
    Thread* next = nullptr;
    const size_t from = c.rng.below(uint32_t(c.threads.size()));
    for (size_t i = 0; i < c.threads.size() && !next; ++i) {
      Thread* t = c.threads[(from + i) % c.threads.size()].get();
      if (!t->done && (!t->ready || t->ready())) next = t;
    }
    if (next) {
      go_on(next);
      if (!next->done) continue;
      --left, --c.blocks[size_t(next->place.block - first)].running;
      if (left) go_on_if(c.all, left);
    } else if (!c.pending.empty()) {
      do_pending(c.pending.size() - 1);
    } else if (!c.ahead_ended) {
      end_ahead();
    } else {
      c.wrong = std::to_string(left) + " threads wait for what never comes";
    }
  }
  if (c.wrong.empty() && !c.pending.empty()) c.wrong = "blocks ended with copies under way";
  g = nullptr;
  if (!c.wrong.empty()) fail(c.wrong);
}

}  // namespace

void run(const Launch& l, const std::function<void()>& kernel) {
  for (int first = 0; first < l.blocks; first += l.cluster) {
    Cluster c(l, kernel, l.seed * 7919 + uint64_t(first));
    run_cluster(c, first);
  }
}

const Place& place() { return g->running->place; }
uint8_t* shared() { return g->blocks[size_t(place().block % g->launch.cluster)].shared.data() + kFirstAddress; }
uint32_t address_of(const void* p) { return uint32_t(static_cast<const uint8_t*>(p) - g->blocks[size_t(place().block % g->launch.cluster)].shared.data()); }
uint8_t* at(uint32_t address) {
  Block& b = block_of(address);
  if (within(address) >= b.shared.size()) fail("an address past shared memory's end");
  return b.shared.data() + within(address);
}
uint32_t of_block(uint32_t address, int rank) { return within(address) | uint32_t(rank + 1) << kBlockBits; }

void wait_for_ahead() {
  pause([c = g] { return c->ahead_ended; });
}
void meet_warp() { meet(g->blocks[size_t(place().block % g->launch.cluster)].warps[size_t(place().thread / 32)], 32); }
void meet_block() { meet(g->blocks[size_t(place().block % g->launch.cluster)].all, place().threads); }
// A wait follows each arrival, so one meeting at the wait does for both.
void cluster_arrive() { pause(nullptr); }
void cluster_wait() { meet(g->all, g->running_threads); }
void meet_some(int threads) { meet(g->blocks[size_t(place().block % g->launch.cluster)].some, threads); }
uint32_t shuffle_xor(uint32_t v, int bits) {
  Block& b = g->blocks[size_t(place().block % g->launch.cluster)];
  const int thread = place().thread;
  b.shuffled[size_t(thread)] = v;
  meet_warp();
  const uint32_t got = b.shuffled[size_t(thread ^ bits)];
  meet_warp();
  return got;
}

void barrier_init(uint32_t barrier, int arrivals) {
  if (within(barrier) % 8 != 0) fail("a barrier is at no multiple of 8");
  block_of(barrier).barriers[within(barrier)] = {arrivals, arrivals};
}
void barrier_arrive(uint32_t barrier, uint32_t more_bytes) {
  Barrier& b = barrier_at(block_of(barrier), barrier);
  if (b.pending == 0) fail("a barrier has more arrivals than it waits for");
  b.bytes += more_bytes, --b.pending;
  advance(b);
  pause(nullptr);
}
void barrier_wait(uint32_t barrier, int parity) {
  Barrier& b = barrier_at(block_of(barrier), barrier);
  pause([&b, parity] { return b.phase % 2 != parity; });
}

void copy(uint32_t blocks, uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  if (within(to) % 128 != 0) fail("a box goes to no multiple of 128");
  const int mine = place().block % g->launch.cluster;
  for (int rank = 0; rank < g->launch.cluster; ++rank) {
    if (blocks ? !(blocks >> rank & 1) : rank != mine) continue;
    Block& b = g->blocks[size_t(rank)];
    const uint32_t bytes = uint32_t(map.box_rows) * 128;
    if (within(to) + bytes > b.shared.size()) fail("a box goes past shared memory's end");
    g->pending.push_back([=, &b] {
      for (int r = 0; r < map.box_rows; ++r)
        for (int c = 0; c < 64; ++c) {
          uint16_t v = 0;
          if (row + r >= 0 && size_t(row + r) < map.rows && column + c < map.cols) std::memcpy(&v, map.data + (size_t(row + r) * size_t(map.stride) + size_t(column + c)) * 2, 2);
          std::memcpy(b.shared.data() + swizzled(within(to) + uint32_t(r) * 128 + uint32_t(c) * 2), &v, 2);
        }
      Barrier& told = barrier_at(b, barrier);
      told.bytes -= bytes;
      advance(told);
    });
  }
}

// Products of one thread follow one another.
void product_begin(std::function<void()> product) {
  Thread& t = *g->running;
  bool behind = !t.open.products.empty();
  for (const Group& group : t.committed) behind |= !group.products.empty();
  if (!behind && g->rng.below(2) == 0) product();
  else t.open.products.push_back(std::move(product));
}
void products_commit() {
  g->running->committed.push_back(std::move(g->running->open));
  g->running->open = {};
}
void products_wait(int left) {
  pause(nullptr);  // products take their time
  auto& committed = g->running->committed;
  while (int(committed.size()) > left) {
    for (const auto& p : committed.front().products) p();
    committed.pop_front();
  }
}
uint32_t swizzled(uint32_t address) { return address ^ (address >> 3 & 0x70); }

}  // namespace sluice::emulator
