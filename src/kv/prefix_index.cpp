#include "kv/prefix_index.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/result.h"

namespace sluice::kv {

PrefixIndex::PrefixIndex(int block_tokens, int total_blocks)
    : block_tokens_(block_tokens), entries_(size_t(total_blocks)), tokens_(size_t(total_blocks) * size_t(block_tokens)) {
  by_key_.reserve(size_t(total_blocks));
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
  auto it = by_key_.find(key);
  if (it == by_key_.end()) return std::nullopt;
  const BlockId block = it->second;
  if (!(entries_[block].parent == parent)) return std::nullopt;
  if (!std::equal(tokens.begin(), tokens.end(), tokens_.begin() + size_t(block) * size_t(block_tokens_)))
    return std::nullopt;
  return block;
}

bool PrefixIndex::insert(const PrefixKey& parent, const PrefixKey& key, std::span<const int32_t> tokens, BlockId block) {
  if (!by_key_.emplace(key, block).second) return false;
  entries_[block] = {true, key, parent};
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + size_t(block) * size_t(block_tokens_));
  return true;
}

void PrefixIndex::erase(BlockId block) {
  Entry& e = entries_[block];
  if (!e.used) return;
  by_key_.erase(e.key);
  e.used = false;
}

}  // namespace sluice::kv
