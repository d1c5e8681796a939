#include "kv/block_pool.h"

#include "base/result.h"

namespace sluice::kv {

BlockPool::BlockPool(int total) : blocks_(size_t(total)) {
  free_.reserve(size_t(total));
  for (int i = total - 1; i >= 0; --i) free_.push_back(i);
}

std::optional<BlockId> BlockPool::allocate(std::optional<BlockId>* evicted) {
  if (evicted) evicted->reset();
  BlockId id;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (oldest_ >= 0) {
    id = oldest_;
    unlink(id);
    --num_cached_;
    blocks_[id].indexed = false;
    if (evicted) *evicted = id;
  } else {
    return std::nullopt;
  }
  blocks_[id].references = 1;
  ++num_held_;
  return id;
}

void BlockPool::retain(BlockId id) {
  Block& b = blocks_[id];
  if (b.references == 0) {
    SLUICE_CHECK(b.indexed);  // a free block cannot be shared
    unlink(id);
    --num_cached_;
    ++num_held_;
  }
  ++b.references;
}

void BlockPool::release(BlockId id) {
  Block& b = blocks_[id];
  SLUICE_CHECK(b.references > 0);
  if (--b.references > 0) return;
  --num_held_;
  if (b.indexed) {
    link_newest(id);
    ++num_cached_;
  } else {
    free_.push_back(id);
  }
}

void BlockPool::set_indexed(BlockId id, bool indexed) {
  Block& b = blocks_[id];
  if (b.indexed == indexed) return;
  b.indexed = indexed;
  if (!indexed && b.references == 0) {
    unlink(id);
    --num_cached_;
    free_.push_back(id);
  }
}

void BlockPool::unlink(BlockId id) {
  Block& b = blocks_[id];
  (b.older >= 0 ? blocks_[b.older].newer : oldest_) = b.newer;
  (b.newer >= 0 ? blocks_[b.newer].older : newest_) = b.older;
  b.newer = b.older = -1;
}

void BlockPool::link_newest(BlockId id) {
  Block& b = blocks_[id];
  b.older = newest_;
  b.newer = -1;
  (newest_ >= 0 ? blocks_[newest_].newer : oldest_) = id;
  newest_ = id;
}

void BlockPool::validate() const {
  int held = 0, cached = 0;
  for (const Block& b : blocks_) {
    if (b.references > 0) ++held;
    else if (b.indexed) ++cached;
  }
  SLUICE_CHECK(held == num_held_ && cached == num_cached_);
  SLUICE_CHECK(num_free() + num_held_ + num_cached_ == total());
  int listed = 0;
  for (BlockId id = oldest_; id >= 0; id = blocks_[id].newer) {
    SLUICE_CHECK(blocks_[id].references == 0 && blocks_[id].indexed);
    ++listed;
  }
  SLUICE_CHECK(listed == num_cached_);
  for (BlockId id : free_) SLUICE_CHECK(blocks_[id].references == 0 && !blocks_[id].indexed);
}

}  // namespace sluice::kv
