// DraftCache: which blocks of a draft model's cache hold what of which sequence. A group of blocks of its own beside the
// target's, with its own prefix index: a prompt that was seen before is not computed again. It is a cache: whoever was not
// drafted for longest loses its blocks when they are short, and is computed again later. One thread.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_index.h"

namespace sluice::draft {

struct CachedText {
  std::vector<int32_t> tokens;        // computed: whose keys and values are in the blocks
  std::vector<kv::BlockId> blocks;    // block i holds positions [i * block_tokens, ...)
  std::vector<kv::PrefixKey> keys;    // of the blocks that the index knows, from the root on
  uint64_t used = 0;                  // when last
  int computed() const { return int(tokens.size()); }
};

class DraftCache {
 public:
  DraftCache(int total_blocks, int block_tokens);

  // The sequence's text, brought in line with what is known: tokens that are not its own are dropped, and where nothing is left,
  // blocks that the index has for its beginning are taken. At least the last known token is left to compute. Stays where it is
  // until forget.
  CachedText& follow(uint64_t sequence, std::span<const int32_t> known, uint64_t salt);
  // Blocks for the positions below `length`. False: there are none, even after taking those of sequences not used at `now`.
  bool reserve(CachedText& text, int length, uint64_t now);
  // Those tokens were computed. Blocks full of `known` tokens enter the index.
  void computed(CachedText& text, std::span<const int32_t> tokens, int known, uint64_t salt);
  void forget(uint64_t sequence);
  int computed_of(uint64_t sequence) const;  // tokens; 0 for one it has not seen

  int block_tokens() const { return block_tokens_; }
  const kv::BlockPool& pool() const { return pool_; }
  void validate() const;  // aborts on a breach

 private:
  void release(CachedText& text, size_t blocks_kept);
  void take_hits(CachedText& text, std::span<const int32_t> known, uint64_t salt);
  bool evict(uint64_t now);

  int block_tokens_;
  kv::BlockPool pool_;
  kv::PrefixIndex index_;
  std::unordered_map<uint64_t, CachedText> texts_;
};

}  // namespace sluice::draft
