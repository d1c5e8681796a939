// PrefixIndex: finds the cache block that already holds a given run of tokens after a given history. A block's key is a
// 128-bit chain hash of (parent's key, its tokens, salt) - XXH3 - and a hit is verified against the tokens themselves and
// the parent's key. All its memory is taken at once. One thread; block lifetimes are BlockPool's business.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/block_pool.h"

namespace sluice::kv {

struct PrefixKey {
  uint64_t low = 0, high = 0;
  bool operator==(const PrefixKey&) const = default;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(int block_tokens, int total_blocks);

  // Key of the root: differs by salt, so tenants do not share.
  static PrefixKey root(uint64_t salt);
  // Key of a full block of tokens after `parent`.
  PrefixKey extend(const PrefixKey& parent, std::span<const int32_t> tokens) const;

  // The block that holds `tokens` after `parent`, if any.
  std::optional<BlockId> find(const PrefixKey& parent, const PrefixKey& key, std::span<const int32_t> tokens) const;
  // Registers a block's content. False (and nothing changes) when the same content is registered already.
  bool insert(const PrefixKey& parent, const PrefixKey& key, std::span<const int32_t> tokens, BlockId block);
  void erase(BlockId block);
  size_t size() const { return size_; }

 private:
  struct Entry {
    bool used = false;
    BlockId next = -1;            // of the same chain
    PrefixKey key, parent;
  };
  // Keys are hashes already: their low bits choose the chain.
  BlockId& chain_of(const PrefixKey& key) { return chains_[size_t(key.low) & (chains_.size() - 1)]; }
  BlockId holder_of(const PrefixKey& key) const;  // -1: none

  int block_tokens_;
  size_t size_ = 0;
  std::vector<BlockId> chains_;   // first of each; a power of two
  std::vector<Entry> entries_;    // by block
  std::vector<int32_t> tokens_;   // by block, block_tokens each
};

}  // namespace sluice::kv
