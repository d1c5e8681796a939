// What attention of prompts is cut into: tasks of 128 rows - tokens times the query heads that share a KV head - of one sequence and KV head.
// Which they are, only the device knows: a warp finds a task by its number. Where the cache holds codes, the prompts' keys and values
// are opened to f16 in scratch memory first (attention_open.cu), and tasks read them there.
#pragma once
#include "kernels/cuda/attention.h"

namespace sluice::kernels::cuda {

constexpr int kRows = 128;       // of a task
constexpr int kGroup = 16;       // positions that lie together in the cache: blocks are whole groups

// Of a step's prompts in scratch memory, one behind the other: for each sequence, each KV head's groups of positions. They come in
// rounds of those that begin within one `bucket` of groups, so that memory for two buckets holds a round. bucket 0: not opened.
struct Opened {
  void *keys = nullptr, *values = nullptr;  // [groups * kGroup, D] of f16
  int bucket = 0, round = 0;
};

struct Task {
  int head, token, row, rows;        // the sequence's first token in the step; the task's first row, and all rows of the sequence
  int start, begin, end;             // positions: of the sequence's first token, and [begin, end) that rows see
  int all_from, all_to;              // those in [all_from, all_to) all rows see
  int tiles;                         // of positions; 0: there are no more tasks
  int from;                          // where its blocks begin in block_ids; of opened ones, its first row
};

// What sequences before this one have, of those that have many rows.
struct Found {
  int sequence, tiles, groups;
};
__device__ inline int groups_of(const AttentionArgs& a, int sequence) { return (a.batch.kv_len[sequence] + kGroup - 1) / kGroup; }

// By a warp: the sequence whose tiles of rows, or whose groups of positions, hold number `wanted`. false: there are fewer.
template <bool by_groups>
__device__ inline bool find(const AttentionArgs& a, int wanted, Found& found) {
  const int heads = a.q_heads / a.kv_heads, S = a.batch.num_sequences, lane = threadIdx.x % 32;
  const int each = (S + 31) / 32, begin = min(S, lane * each), end = min(S, begin + each);
  const auto add = [&](int s, int& tiles, int& groups) {
    const int rows = (a.batch.query_begin[s + 1] - a.batch.query_begin[s]) * heads;
    if (rows > max(kFewRows, heads)) tiles += (rows + kRows - 1) / kRows, groups += groups_of(a, s);
  };
  int tiles = 0, groups = 0;
  for (int s = begin; s < end; ++s) add(s, tiles, groups);
  Found f{begin, tiles, groups};
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int t = __shfl_up_sync(0xFFFFFFFFu, f.tiles, step), g = __shfl_up_sync(0xFFFFFFFFu, f.groups, step);
    if (lane >= step) f.tiles += t, f.groups += g;
  }
  const bool here = wanted < (by_groups ? f.groups : f.tiles);
  f.tiles -= tiles, f.groups -= groups;
  const unsigned lanes = __ballot_sync(0xFFFFFFFFu, here);
  if (!lanes) return false;
  const int owner = __ffs(lanes) - 1;
  if (lane == owner) {
    for (;; ++f.sequence) {
      int t = f.tiles, g = f.groups;
      add(f.sequence, t, g);
      if (wanted < (by_groups ? g : t)) break;
      f.tiles = t, f.groups = g;
    }
  }
  found.sequence = __shfl_sync(0xFFFFFFFFu, f.sequence, owner);
  found.tiles = __shfl_sync(0xFFFFFFFFu, f.tiles, owner);
  found.groups = __shfl_sync(0xFFFFFFFFu, f.groups, owner);
  return true;
}

// The same by tiles, of sequences that the host listed: nothing need be read to know which. groups: whether those are wanted, too.
__device__ inline void find_listed(const AttentionArgs& a, const Listed& l, int wanted, bool groups, Found& found) {
  int i = 0;
  while (i + 1 < l.count && l.tiles[i + 1] <= wanted) ++i;
  found = {l.sequence[i], l.tiles[i], 0};
  for (int k = 0; groups && k < i; ++k) found.groups += groups_of(a, l.sequence[k]);
}

// By a warp: task number `wanted` of `tasks` at most, those of a sequence that have most to do first. false: there are fewer. Of opened
// ones, tasks of other rounds have 0 tiles.
template <int keys>
__device__ inline bool find_task(const AttentionArgs& a, const Opened& opened, const Listed& listed, int tasks, int wanted, Task& t) {
  Found f;
  if (wanted >= tasks) return false;
  if (listed.count) find_listed(a, listed, wanted / a.kv_heads, opened.bucket > 0, f);
  else if (!find<false>(a, wanted / a.kv_heads, f)) return false;
  const int group = a.q_heads / a.kv_heads;
  t.head = wanted % a.kv_heads, t.token = a.batch.query_begin[f.sequence];
  const int tokens = a.batch.query_begin[f.sequence + 1] - t.token;
  t.rows = tokens * group;
  t.row = ((t.rows + kRows - 1) / kRows - 1 - (wanted / a.kv_heads - f.tiles)) * kRows;
  t.start = a.batch.kv_len[f.sequence] - tokens;
  t.all_to = t.start + t.row / group + 1, t.end = t.start + (min(t.row + kRows, t.rows) - 1) / group + 1;
  t.begin = a.window > 0 ? max(0, t.all_to - a.window) / keys * keys : 0;
  t.all_from = a.window > 0 ? max(0, t.end - a.window) : 0;
  t.tiles = (t.end - t.begin + keys - 1) / keys;
  t.from = a.batch.block_begin[f.sequence];
  if (opened.bucket == 0) return true;
  const int unit = f.groups * a.kv_heads + t.head * groups_of(a, f.sequence);
  if (unit / opened.bucket != opened.round) t.tiles = 0;
  t.from = (unit - opened.round * opened.bucket) * kGroup;
  return true;
}
// Whether some row does not see all of the positions of the tile that begins here.
__device__ inline bool is_masked(const Task& t, int from, int keys) { return from + keys > t.all_to || from < t.all_from; }

}  // namespace sluice::kernels::cuda
