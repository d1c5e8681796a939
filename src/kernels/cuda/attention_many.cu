// Attention of sequences with many tokens in the step (prompts): tensor cores by warpgroup. A block takes tasks of 128 rows of one
// sequence and KV head - tokens times the query heads that share it - two warpgroups of 64, and walks the positions in tiles:
// scores of a tile, online softmax in registers, and the weights, still in registers, times the values. A third warpgroup brings keys
// and values to a few stages of shared memory each, and the next task's queries; barriers in shared memory say what is there and what is
// done with. The two warpgroups take turns at the tensor cores, so that one's softmax runs beside the other's products, and
// within each the next tile's scores beside this one's values. The order is FlashAttention's (Dao, arXiv 2307.08691; Shah and others, arXiv
// 2407.08608). Blocks stay and draw tasks until there are none.
#include <algorithm>

#include "kernels/cuda/attention_open.h"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"

namespace sluice::kernels::cuda {
namespace {

[[maybe_unused]] constexpr int kTurns = 2;  // barriers of the hardware, one a warpgroup

template <class H, int dim>
struct Worker {
  using Z = Sizes<dim>;
  const ManyArgs& m;
  const Shared<dim>& shared;
  BarriersOf<dim>& b;
  const int side = threadIdx.x / 128, in_task = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  Tile<H, dim> tile;
  Task t;                  // of which only what the inner loop needs stays in registers
  const float scale = m.a.softcap > 0 ? kLog2E : m.a.scale * kLog2E;
  int last[2], first[2];   // positions that the thread's two rows see

  // Takes the task's queries, and has its first scores set out. false: there is no such task, and scores are of what lies there: a branch
  // around products would let none run beside anything.
  __device__ bool begin(int item, int at) {
    wait_here(b.task_here, item);
    const bool there = b.tasks[item % 2].tiles > 0;
    if (there && item == 0) {
      wait_for_previous();
      place_queries<H, dim, kWorkers>(m.a, b.tasks[0], threadIdx.x, shared.queries());
      publish_shared();
      meet<kWorkers>();
    } else if (there) {
      wait_here(b.queries_here, item);
    }
    tile.take_queries(shared.queries(), side * 64);
    if (tile.kHeld && there) warp_arrive(b.queries_done, 0);
    if (there) wait_here(b.keys_here, at);
    tile.score(shared_address(shared.keys(at)));
    return there;
  }
  __device__ void read(int item) {
    t = b.tasks[item % 2];
    const int group = m.a.q_heads / m.a.kv_heads;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      last[i] = t.start + (t.row + in_task + 8 * i) / group;
      first[i] = m.a.window > 0 ? last[i] - m.a.window + 1 : 0;
    }
  }
  // The task's tile at these positions, the block's number n, whose scores are here.
  __device__ void level(int n, int from) {
    warp_arrive(b.keys_done, n);
    if (m.a.softcap > 0) tile.cap(m.a.scale, m.a.softcap);
    if (is_masked(t, from, Z::kKeys)) tile.hide(from, last, first);
    tile.level(scale);
  }
  // The same tile, whose values were added.
  __device__ void leave(int n, int from) {
    if (is_masked(t, from, Z::kKeys)) tile.spoil(b.spoilt[n % Z::kStages], from, last, first);
    warp_arrive(b.values_done, n);
  }
  // The task whose first scores are under way, the block's tiles from number `at` on. more: whether there is another task.
  __device__ void run(int item, int& at, bool& more) {
    read(item);
    tile.begin();
    products_wait<0>();
    int from = t.begin;
    level(at, from);
    tile.weigh(scale);
    for (const int end = at + t.tiles - 1; at < end; ++at, from += Z::kKeys) {
      wait_here(b.keys_here, at + 1);
      turn_wait<kWorkers>(kTurns + side);
      tile.score(shared_address(shared.keys(at + 1)));
      wait_here(b.values_here, at);
      tile.add_values(shared_address(shared.values(at)), from != t.begin);
      turn_pass<kWorkers>(kTurns + 1 - side);
      products_wait<1>();
      level(at + 1, from + Z::kKeys);
      products_wait<0>();
      leave(at, from);
      tile.shrink_sums();
      tile.weigh(scale);
    }
    if constexpr (!tile.kHeld) warp_arrive(b.queries_done, 0);
    wait_here(b.values_here, at);
    tile.add_values(shared_address(shared.values(at)), from != t.begin);
    more = begin(item + 1, at + 1);
    products_wait<1>();
    leave(at++, from);
    tile.store(m.a, b.tasks[item % 2], in_task);  // read again: registers are short
    warp_arrive(b.task_done, item);
  }
};

template <class H, int dim>
__device__ inline void work(const ManyArgs& m, const Shared<dim>& shared, BarriersOf<dim>& b) {
  if (threadIdx.x >= 128) turn_pass<kWorkers>(kTurns);  // the first turn is the first warpgroup's
  Worker<H, dim> w{m, shared, b};
  int at = 0;
  bool more = w.begin(0, 0);
  for (int item = 0; more; ++item) w.run(item, at, more);
  products_wait<0>();
}

template <class H, int dim>
__global__ void __launch_bounds__(kThreads, 1) many_attention_kernel(const __grid_constant__ ManyArgs m) {
  if constexpr (kHopper) {
    __shared__ BarriersOf<dim> barriers;
    let_next_begin();
    if (threadIdx.x == 0) {
      init(barriers);
      publish_shared();
    }
    __syncthreads();
    const Shared<dim> shared(dynamic_shared());
    if (threadIdx.x >= kWorkers) {
      registers_give<kBringerRegisters>();
      const int me = int(threadIdx.x) - kWorkers;
      if (me < 32) copy_tiles<H, dim, false>(m, shared, barriers);
      else if (me < 64) copy_tiles<H, dim, true>(m, shared, barriers);
      else draw_tasks<H, dim>(m, shared, barriers, me - 64);
    } else {
      registers_take<kWorkerRegisters>();
      work<H, dim>(m, shared, barriers);
    }
  }
}

// Rows of the matrices that keys and values are, whole groups of which lie together.
struct Source {
  const void *keys, *values;
  size_t rows;
  int together;
};

template <class H, int dim>
void launch_many(CudaContext* c, const AttentionArgs& a, const Opened& opened, const Source& from, const Prompts& prompts) {
  const auto kernel = many_attention_kernel<H, dim>;
  constexpr int kShared = Sizes<dim>::kShared;
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  const size_t tasks = prompts.tiles * size_t(a.kv_heads);
  ManyArgs m{a, opened};
  m.tasks = int(tasks);
  m.listed = prompts.listed;
  m.box_rows = Sizes<dim>::kKeys;
  while (from.together % m.box_rows) m.box_rows /= 2;
  m.tickets = next_tickets(c);
  note(c, make_tensor_map(&m.keys, from.keys, from.rows, dim, m.box_rows));
  note(c, make_tensor_map(&m.values, from.values, from.rows, dim, m.box_rows));
  if (c->error != cudaSuccess) return;
  note(c, launch_early(c, dim3(unsigned(std::min(tasks, size_t(c->processors)))), kThreads, kShared, kernel, m));
}

template <class H>
void choose_dim(CudaContext* c, const AttentionArgs& a, const Opened& opened, const Source& from, const Prompts& prompts) {
  switch (a.head_dim) {
    case 64: return launch_many<H, 64>(c, a, opened, from, prompts);
    case 80: return launch_many<H, 80>(c, a, opened, from, prompts);
    case 96: return launch_many<H, 96>(c, a, opened, from, prompts);
    case 128: return launch_many<H, 128>(c, a, opened, from, prompts);
    case 256: return launch_many<H, 256>(c, a, opened, from, prompts);
  }
}

}  // namespace

void attend_many(CudaContext* c, const AttentionArgs& a, const Prompts& prompts) noexcept {
  constexpr size_t kAnyRows = size_t{1} << 31;  // of a cache: boxes name rows of its blocks alone
  const Source cache{a.cache.keys, a.cache.values, kAnyRows, a.batch.block_tokens};
  if (a.cache.type.keys == CacheElement::kF16) return choose_dim<__half>(c, a, {}, cache, prompts);
  if (a.cache.type.keys == CacheElement::kBF16) return choose_dim<__nv_bfloat16>(c, a, {}, cache, prompts);
  Opened opened = room_for_opened(c, a, prompts);
  const size_t rounds = (prompts.groups * size_t(a.kv_heads) - 1) / size_t(opened.bucket) + 1;
  for (; size_t(opened.round) < rounds; ++opened.round) {
    open_prompts(c, a, opened, prompts);
    choose_dim<__half>(c, a, opened, {opened.keys, opened.values, size_t(opened.bucket) * 2 * kGroup, 1 << 10}, prompts);
  }
}

}  // namespace sluice::kernels::cuda
