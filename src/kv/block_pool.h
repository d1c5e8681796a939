// BlockPool: which cache blocks are free, held or cached. Bookkeeping on ids alone; owns no tensor memory.
// A block is free (nobody's), held (referenced by at least one sequence) or cached (unreferenced, but its content is indexed
// and may be hit again; evicted in least-recently-used order). free + held + cached == total, always. One thread.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::kv {

using BlockId = int32_t;

class BlockPool {
 public:
  explicit BlockPool(int total);

  // A block with one reference. Takes a free one, else evicts the oldest cached one (its id goes to *evicted, so that the
  // index can forget it). nullopt when every block is held.
  std::optional<BlockId> allocate(std::optional<BlockId>* evicted);
  // One more reference; a cached block becomes held.
  void retain(BlockId block);
  // One reference less. At zero the block becomes cached when it is marked indexed, else free.
  void release(BlockId block);
  // Whether the block's content stands in the index. Unmarking a cached block frees it.
  void set_indexed(BlockId block, bool indexed);

  int total() const { return int(blocks_.size()); }
  int num_free() const { return int(free_.size()); }
  int num_cached() const { return num_cached_; }
  int num_held() const { return num_held_; }
  int available() const { return num_free() + num_cached_; }
  int references(BlockId block) const { return blocks_[block].references; }
  // Recounts everything from scratch and compares (tests; aborts on a difference).
  void validate() const;

 private:
  struct Block {
    int32_t references = 0;
    bool indexed = false;
    BlockId newer = -1, older = -1;  // neighbours in the list of cached blocks
  };
  void unlink(BlockId block);
  void link_newest(BlockId block);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
  BlockId oldest_ = -1, newest_ = -1;
  int num_cached_ = 0, num_held_ = 0;
};

}  // namespace sluice::kv
