#include "lab/cache_share.h"

#include <algorithm>
#include <string>

namespace sluice::lab {

Result<CacheShare> share_cache(const CacheRoom& r) {
  const uint64_t left = r.available > r.fixed ? r.available - r.fixed : 0, both = r.block_bytes + r.draft_block_bytes;
  const bool drafts = r.draft_block_bytes > 0;
  const uint64_t bytes = r.told ? *r.told : std::min(left, r.useful_blocks * both);
  CacheShare s;
  s.blocks = std::min(bytes / (r.told ? r.block_bytes : both), kMostBlocks);
  if (s.blocks < kLeastBlocks && drafts && !r.told)
    return invalid("a target and its draft model take " + std::to_string(r.fixed) + " of " + std::to_string(r.available) + " bytes before any cache: " + std::to_string(bytes) +
                   " for caches hold fewer than 2 blocks of " + std::to_string(both) + " bytes", "--draft");
  if (s.blocks < kLeastBlocks)
    return invalid("a cache of " + std::to_string(bytes) + " bytes holds fewer than 2 blocks of " + std::to_string(r.block_bytes) + " bytes", "--kv-memory");
  if (!drafts) return s;
  const uint64_t own = s.blocks * r.block_bytes, beside = left > own ? left - own : 0;
  s.draft_blocks = std::min(s.blocks, beside / r.draft_block_bytes);
  if (s.draft_blocks < kLeastBlocks)
    return invalid("a cache of " + std::to_string(own) + " bytes, beside " + std::to_string(r.fixed) + " of a target and its draft model before any cache, leaves " + std::to_string(beside) +
                   " of " + std::to_string(r.available) + " bytes: fewer than 2 blocks of " + std::to_string(r.draft_block_bytes) + " bytes for the draft model's", "--kv-memory");
  return s;
}

}  // namespace sluice::lab
