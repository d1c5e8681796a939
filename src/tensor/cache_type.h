// What a cache keeps keys and values as, and how many bytes that takes. A row is one token's key or value of one head: codes,
// then scales, written together and never changed. So what a sequence holds depends on its tokens alone.
//
//   f32 f16 bf16   D floats
//   fp8            D codes of e4m3 and a scale
//   int8           D codes of -127..127 and a scale
//   int4           groups of 32 dimensions (D rounded up): 16 bytes of codes 0..15, a scale and a minimum
//
// Keys of int4 are no rows: 16 tokens at a time they have a scale and a minimum for each dimension (KIVI, arXiv:2402.02750), made
// when the last of the group is written, which is a group *closed*. Until then its tokens are rows of int8.
//
// Scales and minima are bfloat16, or bytes times one: their range is a float's, and codes are made with the rounded scale, so its
// few bits cost nothing. Keys of int8 are kept mixed (see quant/cache_row.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

enum class CacheElement : uint8_t { kF32, kF16, kBF16, kFp8, kInt8, kInt4 };
inline constexpr CacheElement kCacheElements[] = {CacheElement::kF32, CacheElement::kF16, CacheElement::kBF16,
                                                  CacheElement::kFp8, CacheElement::kInt8, CacheElement::kInt4};
constexpr std::string_view cache_element_name(CacheElement e) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "fp8", "int8", "int4"};
  return kNames[size_t(e)];
}
constexpr bool is_float(CacheElement e) { return e <= CacheElement::kBF16; }
// Keys whose dimensions are mixed before they are rounded, and queries with them.
constexpr bool is_mixed(CacheElement keys) { return keys == CacheElement::kInt8; }
// Keys that are rounded by groups of tokens.
constexpr bool keys_in_groups(CacheElement keys) { return keys == CacheElement::kInt4; }

constexpr int kKeyGroup = 16;    // tokens of int4 keys; blocks are of whole groups
constexpr int kCacheGroup = 32;  // dimensions that share a scale and a minimum in int4 values
constexpr int cache_groups(int head_dim) { return (head_dim + kCacheGroup - 1) / kCacheGroup; }

// Of one row: its codes, and what stands behind them. head_dim is a multiple of 8.
constexpr size_t cache_code_bytes(CacheElement e, int head_dim) {
  switch (e) {
    case CacheElement::kF32: return size_t(head_dim) * 4;
    case CacheElement::kF16:
    case CacheElement::kBF16: return size_t(head_dim) * 2;
    case CacheElement::kFp8:
    case CacheElement::kInt8: return size_t(head_dim);
    case CacheElement::kInt4: return size_t(cache_groups(head_dim)) * kCacheGroup / 2;
  }
  return 0;
}
constexpr size_t cache_scale_bytes(CacheElement e, int head_dim) {
  return is_float(e) ? 0 : e == CacheElement::kInt4 ? size_t(cache_groups(head_dim)) * 4 : 2;
}
constexpr size_t cache_row_bytes(CacheElement e, int head_dim) { return cache_code_bytes(e, head_dim) + cache_scale_bytes(e, head_dim); }

// A closed group of int4 keys of one head: codes, then a byte for each dimension's scale and one for its minimum, and what one of
// either is worth. An open one has rows of int8 in its place and, since they are longer, in the beginning of the next group's, which is
// not needed yet.
constexpr size_t closed_group_bytes(int head_dim) { return size_t(head_dim) * (kKeyGroup / 2 + 2) + 4; }
constexpr size_t open_group_bytes(int head_dim) { return kKeyGroup * cache_row_bytes(CacheElement::kInt8, head_dim); }

// Of one head's keys, or values, in a block.
constexpr size_t cache_key_bytes(CacheElement e, int head_dim, int block_tokens) {
  if (!keys_in_groups(e)) return size_t(block_tokens) * cache_row_bytes(e, head_dim);
  return size_t(block_tokens / kKeyGroup - 1) * closed_group_bytes(head_dim) + open_group_bytes(head_dim);
}
constexpr size_t cache_value_bytes(CacheElement e, int head_dim, int block_tokens) { return size_t(block_tokens) * cache_row_bytes(e, head_dim); }
// Groups that a step of so many tokens of so many sequences writes in, at most.
constexpr size_t step_groups(int tokens, int sequences) { return size_t(tokens / kKeyGroup) + 2 * size_t(sequences); }

struct CacheType {
  CacheElement keys = CacheElement::kF16, values = CacheElement::kF16;
  bool operator==(const CacheType&) const = default;
};

// "fp8" for both; "int8/fp8": keys and values apart; "k8v4": of int8, int4 (and 16: f16) by their bits. Empty: none of these.
std::optional<CacheType> find_cache_type(std::string_view name);
// The shortest of the names.
std::string cache_type_name(CacheType type);

}  // namespace sluice
