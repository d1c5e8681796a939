#include "tests/device/emulator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/device/fiber.h"

namespace sluice::emulator {
namespace {

constexpr uint32_t kFirstAddress = 0x480;  // as awkward as a device's may be: a multiple of 128 alone
constexpr int kBlockBits = 24;             // of an address: above is the block's rank and one
constexpr size_t kMostShared = 227 * 1024, kGuard = 2048;
constexpr uint8_t kGuardByte = 0xC5;
constexpr int kLanes = 32;

struct Group {
  std::vector<std::function<void()>> products;  // not read yet
};
struct Copy {
  uint8_t* to;
  const void* from;
  int bytes, group;
};

struct Block;
struct Thread {
  Fiber fiber;
  unsigned number = 0;  // of its block
  size_t at = 0;        // of all
  Block* block = nullptr;
  bool done = false;
  std::vector<Copy> copies;  // not done yet, in order
  int group = 0;             // that its next copy is of
  std::deque<Group> committed;
  Group open;
};
// What a thread waits for: it can go on once the counter is so far. Apart from threads, since the scheduler looks at little else.
struct Wait {
  const uint64_t* counter;
  uint64_t until;
};
constexpr uint64_t kNothing = 0;
constexpr Wait kGoesOn{&kNothing, 0}, kNever{&kNothing, 1};

// Threads that come to one point and go on together.
struct Meeting {
  uint64_t generation = 0;
  int arrived = 0;
};
// Lanes, and what they tell: of two meetings, since a lane may come to the next while another reads.
struct Telling : Meeting {
  uint32_t lanes = 0;
  uint8_t told[2][kLanes * kMostTold];
};

struct Barrier {
  int arrivals, pending;
  uint64_t phase = 0;
  int64_t bytes = 0;
};

struct Block {
  struct alignas(1024) Memory {
    uint8_t bytes[kFirstAddress + kMostShared + kGuard];
  };
  std::unique_ptr<Memory> memory{new Memory};
  Index index;
  int rank = 0, running = 0;  // threads
  Meeting all, some[16];
  std::vector<Telling> warps;  // of each 32, by their first lane
  std::map<uint32_t, Barrier> barriers;
  uint8_t* shared() { return memory->bytes + kFirstAddress; }
};

// What runs; kept from launch to launch, since stacks are large.
struct State {
  const Launch* launch = nullptr;
  const std::function<void()>* kernel = nullptr;
  Rng rng{0};
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Wait> waits;                     // of each
  std::vector<std::function<void()>> pending;  // copies
  Meeting all;
  uint64_t ahead_ended = 0;
  Thread* running = nullptr;
  int left = 0;  // threads
  std::string wrong;
};
std::unique_ptr<State> state;
State* g = nullptr;

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error(why); }

void enter() {
  try {
    (*g->kernel)();
  } catch (const std::exception& e) {
    g->wrong = e.what();
  }
  g->running->done = true;
  g->waits[g->running->at] = kNever;
  g->running->fiber.pause(true);
}

// The running thread lets others run until the counter is so far, or once.
void pause_until(const uint64_t* counter, uint64_t until) {
  Thread* t = g->running;
  g->waits[t->at] = {counter, until};
  t->fiber.pause();
}
void pause() { pause_until(&kNothing, 0); }

void go_on_if(Meeting& m, int of) {
  if (m.arrived == of) m.arrived = 0, ++m.generation;
}
void meet(Meeting& m, int of) {
  const uint64_t next = m.generation + 1;
  ++m.arrived;
  go_on_if(m, of);
  if (m.generation != next) pause_until(&m.generation, next);
}

Block& mine() { return *g->running->block; }
Block& block_of(uint32_t address) { return address >> kBlockBits ? *g->blocks[size_t(address >> kBlockBits) - 1] : mine(); }
uint32_t within(uint32_t address) { return address & ((1u << kBlockBits) - 1); }
uint8_t* checked(Block& b, uint32_t address, size_t bytes) {
  if (address < kFirstAddress || address + bytes > kFirstAddress + g->launch->shared) fail("an address past shared memory's end");
  return b.memory->bytes + address;
}

Barrier& barrier_at(Block& b, uint32_t address) {
  if (b.running == 0) fail("the block of a barrier has ended");
  const auto at = b.barriers.find(within(address));
  if (at == b.barriers.end()) fail("no barrier was begun at " + std::to_string(within(address)));
  return at->second;
}
void advance(Barrier& b) {
  if (b.pending == 0 && b.bytes == 0) b.pending = b.arrivals, ++b.phase;
}

void begin_block(Block& b, const Launch& l) {
  std::memset(b.shared(), 0xFF, l.shared);
  std::memset(b.shared() + l.shared, kGuardByte, kGuard);
  b.running = l.threads;
  b.warps.resize(std::max(b.warps.size(), size_t(l.threads)));  // no meeting is under way where a block has ended
  b.barriers.clear();
}
void begin_thread(Thread& t, Block& b, unsigned number, size_t at) {
  t.number = number, t.at = at, t.block = &b, t.done = false;
  g->waits[at] = kGoesOn;
  t.copies.clear(), t.group = 0;
  t.committed.clear(), t.open = {};
  t.fiber.begin(enter);
}

// A copy's faults are found when it is done, by no thread.
void do_pending(size_t i) {
  const auto something = std::move(g->pending[i]);
  g->pending.erase(g->pending.begin() + std::ptrdiff_t(i));
  try {
    something();
  } catch (const std::exception& e) {
    g->wrong = e.what();
  }
}

void go_on(Thread& t) {
  g->running = &t;
  place.thread.x = t.number, place.block = t.block->index;
  t.fiber.go_on();
  if (!t.done) return;
  --g->left, --t.block->running;
  if (g->left) go_on_if(g->all, g->left);
}
// Lets a warp's lanes go on in turn, from a random one, for a random time. False: none can.
bool go_on_warp(size_t warp) {
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    const size_t from = g->rng.below(kLanes);
    for (size_t k = 0; k < kLanes; ++k) {
      const size_t at = warp * kLanes + (from + k) % kLanes;
      const Wait& wait = g->waits[at];
      if (*wait.counter < wait.until) continue;
      go_on(*g->threads[at]);
      if (!g->wrong.empty()) return true;
      again = moved = true;
    }
    again = again && g->rng.below(g->pending.empty() && g->ahead_ended ? 8 : 2) != 0;  // a short time where something else goes on
  }
  return moved;
}
bool go_on_any() {
  const size_t warps = size_t(g->launch->cluster * g->launch->threads) / kLanes, from = g->rng.below(uint32_t(warps));
  for (size_t i = 0; i < warps; ++i)
    if (go_on_warp((from + i) % warps)) return true;
  return false;
}

void run_cluster(const Launch& l, const std::vector<Index>& indices, bool first) {
  for (size_t rank = 0; rank < indices.size(); ++rank) {
    if (g->blocks.size() <= rank) g->blocks.push_back(std::make_unique<Block>());
    Block& b = *g->blocks[rank];
    b.index = indices[rank], b.rank = int(rank);
    begin_block(b, l);
    for (int i = 0; i < l.threads; ++i) {
      const size_t at = rank * size_t(l.threads) + size_t(i);
      if (g->threads.size() <= at) g->threads.push_back(std::make_unique<Thread>()), g->waits.push_back(kGoesOn);
      begin_thread(*g->threads[at], b, unsigned(i), at);
    }
  }
  g->left = l.cluster * l.threads, g->all = {};
  const auto end_ahead = [&] { l.ahead_ends(), g->ahead_ended = 1; };
  uint32_t ahead_runs = g->rng.below(uint32_t(g->left) / 4);  // turns, or until all wait for it
  g->ahead_ended = !l.ahead_ends || !first;
  while (g->left > 0 && g->wrong.empty()) {
    if (!g->ahead_ended && ahead_runs-- == 0) end_ahead();
    // Copies come late as often as not: each has the chance of a warp.
    if (!g->pending.empty() && g->rng.below(4) == 0) do_pending(g->rng.below(uint32_t(g->pending.size())));
    else if (go_on_any()) continue;
    else if (!g->pending.empty()) do_pending(g->pending.size() - 1);
    else if (!g->ahead_ended) end_ahead();
    else g->wrong = std::to_string(g->left) + " threads wait for what never comes";
  }
  if (!g->wrong.empty()) fail(g->wrong);
  if (!g->pending.empty()) fail("blocks ended with copies under way");
  for (size_t rank = 0; rank < indices.size(); ++rank) {
    const uint8_t* guard = g->blocks[rank]->shared() + l.shared;
    if (std::any_of(guard, guard + kGuard, [](uint8_t v) { return v != kGuardByte; })) fail("something was written behind shared memory");
  }
}

}  // namespace

Place place;

void run(const Launch& l, const std::function<void()>& kernel) {
  if (l.threads % kLanes != 0 || l.shared > kMostShared || l.blocks.x % unsigned(l.cluster) != 0) fail("a launch that no device takes");
  if (!state) state = std::make_unique<State>();
  g = state.get();
  g->launch = &l, g->kernel = &kernel, g->rng = Rng(l.seed);
  place.threads = Index(unsigned(l.threads)), place.blocks = l.blocks, place.thread = {0, 0, 0};
  const size_t clusters = size_t(l.blocks.x) * l.blocks.y * l.blocks.z / size_t(l.cluster), from = g->rng.below(2) ? 0 : clusters - 1;
  std::vector<Index> indices(static_cast<size_t>(l.cluster));
  try {
    for (size_t n = 0; n < clusters; ++n) {  // upwards or downwards
      const size_t block = (from ? from - n : n) * size_t(l.cluster);
      for (size_t i = 0; i < indices.size(); ++i)
        indices[i] = {unsigned((block + i) % l.blocks.x), unsigned(block / l.blocks.x % l.blocks.y), unsigned(block / l.blocks.x / l.blocks.y)};
      run_cluster(l, indices, n == 0);
    }
  } catch (...) {
    g = nullptr, state = nullptr;  // stacks that were left in the midst of something
    throw;
  }
  g = nullptr;
}

uint8_t* shared() { return mine().shared(); }
uint32_t address_of(const void* p) {
  const std::ptrdiff_t at = static_cast<const uint8_t*>(p) - mine().memory->bytes;
  if (at < 0 || size_t(at) > kFirstAddress + g->launch->shared) fail("an address that is not of shared memory");
  return uint32_t(at);
}
uint8_t* at(uint32_t address) { return checked(block_of(address), within(address), 1); }
uint32_t of_block(uint32_t address, int rank) { return within(address) | uint32_t(rank + 1) << kBlockBits; }

void wait_for_ahead() { pause_until(&g->ahead_ended, 1); }
void meet_block() { meet(mine().all, g->launch->threads); }
void meet_some(int barrier, int threads) { meet(mine().some[barrier], threads); }
// A wait follows each arrival, so one meeting at the wait does for both.
void cluster_arrive() { pause(); }
void cluster_wait() { meet(g->all, g->left); }

Told begin_to_tell(uint32_t lanes) {
  const unsigned thread = g->running->number, lane = thread % kLanes;
  if (!(lanes >> lane & 1)) fail("a lane that is not among those that meet");
  Telling& t = mine().warps[thread - lane + unsigned(std::countr_zero(lanes))];
  if (t.arrived == 0) t.lanes = lanes;
  if (t.lanes != lanes) fail("lanes that meet different ones");
  return {t.told[t.generation % 2], &t};
}
void meet_told(void* telling) {
  Telling& t = *static_cast<Telling*>(telling);
  meet(t, t.lanes == ~0u ? kLanes : std::popcount(t.lanes));
}
void meet_warp(uint32_t lanes) { meet_told(begin_to_tell(lanes).telling); }

void barrier_init(uint32_t barrier, int arrivals) {
  if (within(barrier) % 8 != 0) fail("a barrier is at no multiple of 8");
  block_of(barrier).barriers[within(barrier)] = {arrivals, arrivals};
}
void barrier_arrive(uint32_t barrier, uint32_t more_bytes) {
  Barrier& b = barrier_at(block_of(barrier), barrier);
  if (b.pending == 0) fail("a barrier has more arrivals than it waits for");
  b.bytes += more_bytes, --b.pending;
  advance(b);
  pause();
}
// A phase that was missed looks like the one before it, as it does there.
void barrier_wait(uint32_t barrier, int parity) {
  const Barrier& b = barrier_at(block_of(barrier), barrier);
  while (int(b.phase % 2) == parity) pause_until(&b.phase, b.phase + 1);
}

void copy(uint32_t blocks, uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  if (within(to) % 128 != 0) fail("a box goes to no multiple of 128");
  const uint32_t bytes = uint32_t(map.box_rows) * 128;
  for (int rank = 0; rank < g->launch->cluster; ++rank) {
    if (blocks ? !(blocks >> rank & 1) : rank != mine().rank) continue;
    Block& b = *g->blocks[size_t(rank)];
    checked(b, within(to), bytes);
    g->pending.push_back([=, &b] {
      for (int r = 0; r < map.box_rows; ++r)
        for (int c = 0; c < 64; ++c) {
          uint16_t v = 0;
          if (row + r >= 0 && size_t(row + r) < map.rows && column + c < map.cols) std::memcpy(&v, map.data + (size_t(row + r) * size_t(map.stride) + size_t(column + c)) * 2, 2);
          std::memcpy(b.memory->bytes + swizzled(within(to) + uint32_t(r) * 128 + uint32_t(c) * 2), &v, 2);
        }
      Barrier& told = barrier_at(b, barrier);
      told.bytes -= bytes;
      advance(told);
    });
  }
}

// Half of them come when they are waited for, and until then there is what no kernel wants to read.
void copy_begin(uint32_t to, const void* from, int bytes) {
  if (to % uint32_t(bytes) != 0 || reinterpret_cast<uintptr_t>(from) % uintptr_t(bytes) != 0) fail("a copy of " + std::to_string(bytes) + " bytes is at no multiple of them");
  Thread& t = *g->running;
  Copy c{checked(mine(), to, size_t(bytes)), from, bytes, t.group};
  if (!from) std::memset(c.to, 0, size_t(bytes));
  else if (g->rng.next_u32() & 1) std::memcpy(c.to, from, size_t(bytes));
  else std::memset(c.to, 0xFF, size_t(bytes)), t.copies.push_back(c);
}
void copies_commit() { ++g->running->group; }
void copies_wait(int left) {
  Thread& t = *g->running;
  size_t done = 0;
  for (; done < t.copies.size() && t.copies[done].group < t.group - left; ++done) std::memcpy(t.copies[done].to, t.copies[done].from, size_t(t.copies[done].bytes));
  t.copies.erase(t.copies.begin(), t.copies.begin() + std::ptrdiff_t(done));
}
void copies_wait_all() {
  copies_commit();
  copies_wait(0);
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
  pause();  // products take their time
  auto& committed = g->running->committed;
  while (int(committed.size()) > left) {
    for (const auto& p : committed.front().products) p();
    committed.pop_front();
  }
}
uint32_t swizzled(uint32_t address) { return address ^ (address >> 3 & 0x70); }

}  // namespace sluice::emulator
