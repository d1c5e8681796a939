#include "kv/prefix_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/result.h"

namespace sluice::kv {

PrefixIndex::PrefixIndex(int block_tokens, int total_blocks)
    : block_tokens_(block_tokens), chains_(std::bit_ceil(size_t(std::max(1, total_blocks))), -1), entries_(size_t(total_blocks)),
      tokens_(size_t(total_blocks) * size_t(block_tokens)) {}

BlockId PrefixIndex::holder_of(const PrefixKey& key) const {
  BlockId b = chains_[size_t(key.low) & (chains_.size() - 1)];
  while (b >= 0 && !(entries_[b].key == key)) b = entries_[b].next;
  return b;
}

PrefixKey PrefixIndex::root(uint64_t salt) {
  const XXH128_hash_t h = XXH3_128bits_withSeed(&salt, sizeof salt, 0x51u);
  return {h.low64, h.high64};
}

PrefixKey PrefixIndex::extend(const PrefixKey& parent, std::span<const int32_t> tokens) const {
  SLUICE_CHECK(int(tokens.size()) == block_tokens_);
  constexpr int kMaxBlockTokens = 256;
  unsigned char bytes[16 + 4 * kMaxBlockTokens];
  std::memcpy(bytes, &parent.low, 8);
  std::memcpy(bytes + 8, &parent.high, 8);
  std::memcpy(bytes + 16, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t h = XXH3_128bits(bytes, 16 + tokens.size_bytes());
  return {h.low64, h.high64};
}

std::optional<BlockId> PrefixIndex::find(const PrefixKey& parent, const PrefixKey& key,
                                         std::span<const int32_t> tokens) const {
  const BlockId block = holder_of(key);
  if (block < 0 || !(entries_[block].parent == parent)) return std::nullopt;
  if (!std::equal(tokens.begin(), tokens.end(), tokens_.begin() + size_t(block) * size_t(block_tokens_)))
    return std::nullopt;
  return block;
}

bool PrefixIndex::insert(const PrefixKey& parent, const PrefixKey& key, std::span<const int32_t> tokens, BlockId block) {
  if (holder_of(key) >= 0) return false;
  BlockId& first = chain_of(key);
  entries_[block] = {true, first, key, parent};
  first = block;
  ++size_;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + size_t(block) * size_t(block_tokens_));
  return true;
}

void PrefixIndex::erase(BlockId block) {
  Entry& e = entries_[block];
  if (!e.used) return;
  BlockId* at = &chain_of(e.key);
  while (*at != block) at = &entries_[*at].next;
  *at = e.next;
  e.used = false;
  --size_;
}

}  // namespace sluice::kv
