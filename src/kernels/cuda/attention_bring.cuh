// What a block of attention_many.cu keeps in shared memory, and how its third warpgroup (the bringers) fills it. A warp has tiles of
// keys copied to three stages, swizzled as wgmma.cuh wants them, and a warp tiles of values, which it tidies where not all rows see them; two
// warps draw the next task while this one is computed, and place its queries.
#pragma once
#include "kernels/cuda/attention_task.cuh"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

namespace sluice::kernels::cuda {

constexpr int kWorkers = 256, kBringers = 128, kThreads = kWorkers + kBringers, kPlacers = 64;
// Registers of a thread of each kind: all that a processor has.
constexpr int kWorkerRegisters = 232, kBringerRegisters = 40;

struct ManyArgs {
  AttentionArgs a;
  Opened opened;
  CUtensorMap keys, values;  // rows of the cache, or of what was opened
  int box_rows;              // that are copied at once
  int tasks;                 // at most
  Listed listed;
  int* tickets;              // how many tasks were drawn, and blocks that are done; zero between launches
};

template <int dim>
struct Sizes {
  static constexpr int kKeys = dim <= 128 ? 128 : 64, kPanels = (dim + 63) / 64, kPieces = dim / 8;
  static constexpr int kQueryPanel = kRows * 128, kStage = kKeys * 128 * kPanels;
  // Of keys and values: boxes that are copied hold whole rows where those are whole panels; bytes from eight rows to the next, and from a panel.
  static constexpr bool kWhole = dim % 64 == 0;
  static constexpr int kEight = kWhole ? kPanels * 1024 : 1024, kPanel = kWhole ? 1024 : kKeys * 128;
  static constexpr int kStages = dim <= 128 ? 3 : 2;
  static constexpr int kShared = kQueryPanel * kPanels + 2 * kStages * kStage + 1024;  // to begin at a multiple of 1,024
};

// Where 16-byte piece c of row r lies, panels and eights of rows being so many bytes apart.
__device__ inline uint32_t piece_at(int r, int c, int panel, int eight = 1024) {
  return uint32_t(c / 8 * panel + r / 8 * eight + r % 8 * 128 + ((c ^ r) & 7) * 16);
}

template <int dim>
struct Shared {
  using Z = Sizes<dim>;
  uint8_t* base;
  __device__ explicit Shared(uint8_t* raw) : base(raw + (1024 - shared_address(raw) % 1024) % 1024) {}
  __device__ uint8_t* queries() const { return base; }
  // Of the block's tile number n.
  __device__ uint8_t* keys(int n) const { return base + Z::kQueryPanel * Z::kPanels + n % Z::kStages * Z::kStage; }
  __device__ uint8_t* values(int n) const { return keys(n) + Z::kStages * Z::kStage; }
};

// What is there, and what is done with. Of stages the n-th use is of the block's tile n, of all others of its task n.
template <int stages>
struct Barriers {
  static constexpr int kStages = stages;
  uint64_t keys_here[stages], values_here[stages], keys_done[stages], values_done[stages];
  uint64_t values_raw[1];                 // of a tile that is to be tidied
  uint64_t queries_here[1], queries_done[1], task_here[2], task_done[2];
  Task tasks[2];
  alignas(16) uint32_t spoilt[stages][4];  // of each stage's values: rows that held no numbers and are zeros now
};
template <int dim> using BarriersOf = Barriers<Sizes<dim>::kStages>;
template <int stages>
__device__ inline void init(Barriers<stages>& b) {
  for (int i = 0; i < stages; ++i) {
    barrier_init(b.keys_here + i, 1), barrier_init(b.values_here + i, 1);
    barrier_init(b.keys_done + i, kWorkers / 32), barrier_init(b.values_done + i, kWorkers / 32);
  }
  barrier_init(b.values_raw, 1);
  barrier_init(b.queries_here, kPlacers), barrier_init(b.queries_done, kWorkers / 32);
  for (int i = 0; i < 2; ++i) barrier_init(b.task_here + i, 1), barrier_init(b.task_done + i, kThreads / 32 - 1);
}
// The n-th use of some things in turn: here waits for it to be there, free for the use before to be over.
template <int slots> __device__ inline void wait_here(uint64_t (&of)[slots], int n) { barrier_wait(of + n % slots, n / slots % 2); }
template <int slots>
__device__ inline void wait_free(uint64_t (&of)[slots], int n) {
  if (n >= slots) barrier_wait(of + n % slots, (n / slots - 1) % 2);
}
// By one lane of a warp, for all of it.
template <int slots>
__device__ inline void warp_arrive(uint64_t (&of)[slots], int n) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(of + n % slots);
}
// A bringers' copy of a task; false: there are no more.
template <int stages>
__device__ inline bool take_task(Barriers<stages>& b, int item, Task& t) {
  wait_here(b.task_here, item);
  t = b.tasks[item % 2];
  warp_arrive(b.task_done, item);
  return t.tiles > 0;
}

// A task's queries, rounded to H, by `threads` threads.
template <class H, int dim, int threads>
__device__ inline void place_queries(const AttentionArgs& a, const Task& t, int me, uint8_t* to) {
  using Z = Sizes<dim>;
  constexpr int kLanes = Z::kPieces <= 8 ? 8 : Z::kPieces <= 16 ? 16 : 32, kPass = threads / kLanes;  // threads a row, rows a pass
  const int group = a.q_heads / a.kv_heads, r = me / kLanes, c = me % kLanes;
  if (c >= Z::kPieces) return;
  const size_t base = size_t(t.token) * a.q_stride + size_t(t.head) * group * dim + 8 * c;
  const auto place_of = [&](int i) { return to + piece_at(r + i, c, Z::kQueryPanel); };
  const auto element_at = [&](int i) { return base + size_t((t.row + r + i) / group) * a.q_stride + (t.row + r + i) % group * dim; };
  const auto there = [&](int i) { return t.row + r + i < t.rows; };
  if (a.q.type == DType::kF32) {
    ConstArray q = a.q;
    q.type = DType::kF32;
#pragma unroll threads == kPlacers ? 2 : 8
    for (int i = 0; i < kRows; i += kPass)
      *reinterpret_cast<uint4*>(place_of(i)) = there(i) ? eight_of<H>(q, element_at(i)) : make_uint4(0, 0, 0, 0);
    return;
  }
  // All at once and through no register: placers have few, and tasks may be short.
  for (int i = 0; i < kRows; i += kPass) {
    const auto* from = static_cast<const __half*>(a.q.data) + (there(i) ? element_at(i) : 0);
    copy_or_zeros(shared_address(place_of(i)), from, there(i));
  }
  copies_wait_all();
  if (a.q.type == dtype_of<H>()) return;
#pragma unroll 4
  for (int i = 0; i < kRows; i += kPass) {
    auto* words = reinterpret_cast<uint4*>(place_of(i));
    *words = eight_rounded<H>(*words, dtype_of<H>() == DType::kF16 ? DType::kBF16 : DType::kF16);
  }
}

// The placers: the first of their warps draws tasks and says which they are. Workers place the first task's queries themselves, which is
// faster, and nobody computes yet.
template <class H, int dim>
__device__ inline void draw_tasks(const ManyArgs& m, const Shared<dim>& shared, BarriersOf<dim>& b, int me) {
  using Z = Sizes<dim>;
  const auto draw = [&] {
    int ticket = 0;
    if (me == 0) ticket = int(gridDim.x) + atomicAdd(m.tickets, 1);
    return ticket;  // the first lane's
  };
  int wanted = int(blockIdx.x);
  for (int item = 0;; ++item) {
    Task t{};
    if (me < 32) {
      wait_free(b.task_done, item);
      for (bool more = true; more && t.tiles == 0;) {
        more = find_task<Z::kKeys>(m.a, m.opened, m.listed, m.tasks, __shfl_sync(0xFFFFFFFFu, wanted, 0), t);
        if (!more) t.tiles = 0;
        wanted = draw();
      }
      if (me == 0) {
        b.tasks[item % 2] = t;
        barrier_arrive(b.task_here + item % 2);
      }
    } else {
      take_task(b, item, t);
    }
    if (item == 0) wait_for_previous();  // where there is nothing to do too: the end of this kernel is the end of those before
    if (t.tiles == 0) break;
    if (item > 0) {
      wait_free(b.queries_done, item);
      place_queries<H, dim, kPlacers>(m.a, t, me, shared.queries());
      publish_shared();
    }
    barrier_arrive(b.queries_here);
  }
  if (me == 0 && atomicAdd(m.tickets + 1, 1) == int(gridDim.x) - 1) m.tickets[0] = 0, m.tickets[1] = 0;
}

// By a warp, of a tile of values whose first position is `from`. A weight of 0 hides a value only if that is a number. So rows past the
// sequence's end become zeros, and of those that not all of the task's rows see, the ones that hold an infinity or NaN, which are noted: who
// sees them gets NaNs.
template <class H, int dim>
__device__ inline void tidy(const Task& t, int from, uint8_t* values, uint32_t (&spoilt)[4]) {
  using Z = Sizes<dim>;
  constexpr int kPieces = Z::kPanels * 8, kPass = 32 / kPieces;  // of a row with what pads it; rows a pass
  const int lane = threadIdx.x % 32, r = lane / kPieces, c = lane % kPieces;
  const int left = min(Z::kKeys, t.end - from), first = from < t.all_from ? 0 : max(0, t.all_to - from) / kPass * kPass;
  const auto piece = [&](int row) { return reinterpret_cast<uint4*>(values + piece_at(row, c, Z::kPanel, Z::kEight)); };
  const auto zeros = [&](int row) {
    uint32_t sum = 0;
    const uint4 v = *piece(row);
    add_zeros<H>(sum, v.x), add_zeros<H>(sum, v.y), add_zeros<H>(sum, v.z), add_zeros<H>(sum, v.w);
    return sum & 0x7FFF7FFFu;
  };
  if (lane == 0) *reinterpret_cast<uint4*>(spoilt) = make_uint4(0, 0, 0, 0);  // who arrives for all
#pragma unroll 8
  for (int row = left / kPass * kPass + r; row < Z::kKeys; row += kPass)
    if (row >= left) *piece(row) = make_uint4(0, 0, 0, 0);
  __syncwarp();
  uint32_t any = 0;
#pragma unroll 8
  for (int row = first + r; row < left; row += kPass) any |= zeros(row);
  if (__any_sync(0xFFFFFFFFu, any != 0)) {
    for (int row = first + r; row < left; row += kPass)
      if (zeros(row) != 0) atomicOr(&spoilt[row / 32], 1u << (row % 32));
    __syncwarp();
    for (int row = first; row < left; ++row)
      if (lane < kPieces && spoilt[row / 32] >> (row % 32) & 1) *piece(row) = make_uint4(0, 0, 0, 0);
  }
  publish_shared();
}

// By a warp: tiles of keys, or of values, are copied as stages become free.
template <class H, int dim, bool of_values>
__device__ inline void copy_tiles(const ManyArgs& m, const Shared<dim>& shared, BarriersOf<dim>& b) {
  using Z = Sizes<dim>;
  constexpr int kParts = Z::kWhole ? 1 : Z::kPanels;  // copies a box
  const int lane = threadIdx.x % 32, boxes = Z::kKeys / m.box_rows, bytes = m.box_rows / 8 * Z::kEight, slots = m.a.batch.block_tokens;
  Task t;
  int tile = 0, raw = 0;
  for (int item = 0; take_task(b, item, t); ++item) {
    // The matrix's row of the lane's box of tile n.
    const auto row_of = [&](int n) {
      const int position = t.begin + n * Z::kKeys + lane * m.box_rows;
      if (n >= t.tiles || lane >= boxes || position >= t.end) return 0;
      if (m.opened.bucket) return t.from + position;
      return (m.a.batch.block_ids[t.from + position / slots] * m.a.kv_heads + t.head) * slots + position % slots;
    };
    int row = row_of(0), next = row_of(1);
    if (item == 0) wait_for_previous();
    for (int n = 0; n < t.tiles; ++n, ++tile) {
      const int from = t.begin + n * Z::kKeys, here = min(boxes, (t.end - from + m.box_rows - 1) / m.box_rows);
      const bool tidied = of_values && is_masked(t, from, Z::kKeys);
      uint64_t* told = of_values ? b.values_here + tile % Z::kStages : b.keys_here + tile % Z::kStages;
      uint8_t* to = of_values ? shared.values(tile) : shared.keys(tile);
      if (tidied) told = b.values_raw;
      wait_free(of_values ? b.values_done : b.keys_done, tile);
      if (lane == 0) barrier_expect(told, here * kParts * bytes);
      if (lane < here) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) copy_box(shared_address(to) + p * Z::kPanel + lane * bytes, of_values ? &m.values : &m.keys, 64 * p, row / 8, told);
      }
      __syncwarp();
      row = next, next = row_of(n + 2);
      if (!tidied) continue;
      wait_here(b.values_raw, raw++);
      tidy<H, dim>(t, from, to, b.spoilt[tile % Z::kStages]);
      warp_arrive(b.values_here, tile);
    }
  }
}

}  // namespace sluice::kernels::cuda
