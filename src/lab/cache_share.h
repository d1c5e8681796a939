// What a device's memory has for caches: a target's, and its draft model's, which comes out of the same memory. Blocks of both are of
// as many tokens. Plain arithmetic: it asks no device.
#pragma once
#include <cstdint>
#include <optional>

#include "base/result.h"

namespace sluice::lab {

// What a draft model takes of the device that it shares with its target; kv_bytes_per_token 0: there is none, or none there.
struct DraftNeeds {
  uint64_t weights_bytes = 0;
  uint64_t step_bytes = 0, kv_bytes_per_token = 0;  // of all its executors together
};

struct CacheRoom {
  uint64_t available = 0;           // bytes of the device
  uint64_t fixed = 0;               // of these, for all but caches: both models' weights and steps, and what stays free
  uint64_t block_bytes = 0, draft_block_bytes = 0;  // draft: of all its executors together; 0: there is no draft model
  uint64_t useful_blocks = 0;       // more would never be used
  std::optional<uint64_t> told;     // bytes of the target's cache, by the user's word
};

struct CacheShare { uint64_t blocks = 0, draft_blocks = 0; };  // draft: of each of its executors

constexpr uint64_t kLeastBlocks = 2, kMostBlocks = 1 << 24;

// Both caches get the same number of blocks: what either has beyond the other's would be idle. Where the target's was told, that is its
// size, and the draft model's gets as many blocks or what is left. What was told for a target alone is not held against the device here.
// Errors: kInvalidArgument naming --draft or --kv-memory where one of them would have fewer than kLeastBlocks.
Result<CacheShare> share_cache(const CacheRoom& room);

}  // namespace sluice::lab
