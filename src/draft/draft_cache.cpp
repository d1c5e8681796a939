#include "draft/draft_cache.h"

#include <algorithm>

#include "base/result.h"

namespace sluice::draft {

DraftCache::DraftCache(int total_blocks, int block_tokens)
    : block_tokens_(block_tokens), pool_(total_blocks), index_(block_tokens, total_blocks) {}

CachedText& DraftCache::follow(uint64_t sequence, std::span<const int32_t> known, uint64_t salt) {
  CachedText& text = texts_[sequence];
  // Only the last few can differ: drafts that were not accepted. Blocks in the index hold known tokens and stay.
  const int most = std::min(text.computed(), int(known.size()) - 1);
  int same = std::min(most, int(text.keys.size()) * block_tokens_);
  while (same < most && text.tokens[size_t(same)] == known[size_t(same)]) ++same;
  text.tokens.resize(size_t(same));
  release(text, size_t((same + block_tokens_ - 1) / block_tokens_));
  if (same == 0) take_hits(text, known, salt);
  return text;
}

void DraftCache::release(CachedText& text, size_t kept) {
  for (; text.blocks.size() > kept; text.blocks.pop_back()) pool_.release(text.blocks.back());
  if (text.keys.size() > kept) text.keys.resize(kept);
}

void DraftCache::take_hits(CachedText& text, std::span<const int32_t> known, uint64_t salt) {
  kv::PrefixKey parent = kv::PrefixIndex::root(salt);
  const size_t B = size_t(block_tokens_);
  while (text.tokens.size() + B < known.size()) {
    const auto tokens = known.subspan(text.tokens.size(), B);
    const kv::PrefixKey key = index_.extend(parent, tokens);
    const auto block = index_.find(parent, key, tokens);
    if (!block) return;
    pool_.retain(*block);
    text.blocks.push_back(*block);
    text.keys.push_back(key);
    text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
    parent = key;
  }
}

bool DraftCache::reserve(CachedText& text, int length, uint64_t now) {
  text.used = now;
  while (int(text.blocks.size()) * block_tokens_ < length) {
    std::optional<kv::BlockId> evicted;
    const auto block = pool_.allocate(&evicted);
    if (evicted) index_.erase(*evicted);
    if (block) text.blocks.push_back(*block);
    else if (!evict(now)) return false;
  }
  return true;
}

bool DraftCache::evict(uint64_t now) {
  CachedText* oldest = nullptr;
  for (auto& [sequence, text] : texts_)
    if (!text.blocks.empty() && text.used < now && (!oldest || text.used < oldest->used)) oldest = &text;
  if (!oldest) return false;
  release(*oldest, 0);
  oldest->tokens.clear();
  return true;
}

void DraftCache::computed(CachedText& text, std::span<const int32_t> tokens, int known, uint64_t salt) {
  text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
  SLUICE_CHECK(text.computed() <= int(text.blocks.size()) * block_tokens_);
  const int sure = std::min(text.computed(), known);
  kv::PrefixKey parent = text.keys.empty() ? kv::PrefixIndex::root(salt) : text.keys.back();
  for (int i = int(text.keys.size()); (i + 1) * block_tokens_ <= sure; ++i) {
    const auto full = std::span<const int32_t>(text.tokens).subspan(size_t(i) * size_t(block_tokens_), size_t(block_tokens_));
    const kv::PrefixKey key = index_.extend(parent, full);
    if (index_.insert(parent, key, full, text.blocks[size_t(i)])) pool_.set_indexed(text.blocks[size_t(i)], true);
    text.keys.push_back(key);
    parent = key;
  }
}

void DraftCache::forget(uint64_t sequence) {
  const auto it = texts_.find(sequence);
  if (it == texts_.end()) return;
  release(it->second, 0);
  texts_.erase(it);
}

int DraftCache::computed_of(uint64_t sequence) const {
  const auto it = texts_.find(sequence);
  return it == texts_.end() ? 0 : it->second.computed();
}

void DraftCache::validate() const {
  pool_.validate();
  std::vector<int> references(size_t(pool_.total()), 0);
  for (const auto& [sequence, text] : texts_) {
    SLUICE_CHECK(text.computed() <= int(text.blocks.size()) * block_tokens_ && text.keys.size() <= text.blocks.size());
    for (const kv::BlockId b : text.blocks) ++references[size_t(b)];
  }
  for (int b = 0; b < pool_.total(); ++b) SLUICE_CHECK(references[size_t(b)] == pool_.references(b));
}

}  // namespace sluice::draft
