// What a target and its draft model get of a device: seeded cases, and plans of a backend that says its memory is its own.
#include "lab/cache_share.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "lab/planner.h"
#include "lab/speculation.h"

namespace sluice::lab {
namespace {

CacheRoom room(uint64_t available, uint64_t fixed, uint64_t block, uint64_t draft_block) {
  CacheRoom r;
  r.available = available;
  r.fixed = fixed;
  r.block_bytes = block;
  r.draft_block_bytes = draft_block;
  r.useful_blocks = kMostBlocks;
  return r;
}

TEST(CacheShare, BothCachesHoldTheSame) {
  const CacheShare s = *share_cache(room(1000, 100, 50, 10));
  EXPECT_EQ(s.blocks, 15u);
  EXPECT_EQ(s.draft_blocks, 15u);
  EXPECT_EQ(share_cache(room(1000, 100, 50, 0))->blocks, 18u);  // no draft model: all of it
  EXPECT_EQ(share_cache(room(1000, 100, 50, 0))->draft_blocks, 0u);
  CacheRoom few = room(1000, 100, 50, 10);
  few.useful_blocks = 4;
  EXPECT_EQ(share_cache(few)->blocks, 4u);
  EXPECT_EQ(share_cache(few)->draft_blocks, 4u);
}

TEST(CacheShare, ATargetsCacheThatWasToldStaysAsItIs) {
  CacheRoom r = room(1000, 100, 50, 10);
  r.told = 620;
  EXPECT_EQ(share_cache(r)->blocks, 12u);
  EXPECT_EQ(share_cache(r)->draft_blocks, 12u);
  r.told = 860;  // 17 blocks leave 50 bytes
  EXPECT_EQ(share_cache(r)->blocks, 17u);
  EXPECT_EQ(share_cache(r)->draft_blocks, 5u);
  r.draft_block_bytes = 0;  // for the loader to hold against the device
  r.told = 5000;
  EXPECT_EQ(share_cache(r)->blocks, 100u);
}

TEST(CacheShare, WhatDoesNotFitIsAnErrorWithNumbers) {
  CacheRoom r = room(1000, 940, 50, 10);
  auto s = share_cache(r);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().field, "--draft");
  for (const char* number : {"940", "1000", "60 "}) EXPECT_NE(s.error().message.find(number), std::string::npos) << s.error().message;
  r.fixed = 2000;
  EXPECT_EQ(share_cache(r).error().field, "--draft");
  r = room(1000, 100, 50, 10);
  r.told = 899;
  s = share_cache(r);
  EXPECT_TRUE(s.ok());
  r.told = 900;
  s = share_cache(r);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().field, "--kv-memory");
  for (const char* number : {"900", "1000", "10 "}) EXPECT_NE(s.error().message.find(number), std::string::npos) << s.error().message;
  r.told = 99;
  EXPECT_EQ(share_cache(r).error().field, "--kv-memory");
}

TEST(CacheShare, NothingIsOverWhatThereIs) {
  int good = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    CacheRoom r = room(rng.next_u64() >> (16 + rng.below(40)), 0, 1 + rng.below(1 << 20), rng.below(3) ? 1 + rng.below(1 << 20) : 0);
    r.fixed = uint64_t(double(r.available) * 1.2 * double(rng.uniform()));
    r.useful_blocks = 1 + rng.below(1 << 20);
    if (rng.below(2)) r.told = uint64_t(double(r.available) * double(rng.uniform()));
    const bool drafts = r.draft_block_bytes > 0;
    const uint64_t left = r.available > r.fixed ? r.available - r.fixed : 0, both = r.block_bytes + r.draft_block_bytes;
    const auto s = share_cache(r);
    if (!s.ok()) {
      ++refused;
      EXPECT_EQ(s.error().code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(s.error().field, drafts && !r.told ? "--draft" : "--kv-memory");
      EXPECT_EQ(s.error().message.find('\n'), std::string::npos);
      if (r.told) EXPECT_TRUE(*r.told < 2 * r.block_bytes || *r.told / r.block_bytes * r.block_bytes + 2 * r.draft_block_bytes > left);
      else EXPECT_TRUE(left < 2 * both || r.useful_blocks < 2);
      continue;
    }
    ++good;
    EXPECT_GE(s->blocks, kLeastBlocks);
    EXPECT_LE(s->blocks, kMostBlocks);
    if (drafts || !r.told) EXPECT_LE(s->blocks * r.block_bytes + s->draft_blocks * r.draft_block_bytes, left);
    if (!drafts) {
      EXPECT_EQ(s->draft_blocks, 0u);
    } else {
      EXPECT_GE(s->draft_blocks, kLeastBlocks);
      EXPECT_LE(s->draft_blocks, s->blocks);
    }
    if (r.told) {
      EXPECT_EQ(s->blocks, std::min(*r.told / r.block_bytes, kMostBlocks));
      if (drafts && s->draft_blocks < s->blocks) EXPECT_GT(s->blocks * r.block_bytes + (s->draft_blocks + 1) * r.draft_block_bytes, left);
    } else {
      EXPECT_LE(s->blocks, r.useful_blocks);
      if (drafts) EXPECT_EQ(s->draft_blocks, s->blocks);
      if (s->blocks < std::min(r.useful_blocks, kMostBlocks)) EXPECT_GT((s->blocks + 1) * both, left);  // no block is left over
    }
  }
  EXPECT_GT(good, 5000);
  EXPECT_GT(refused, 1000);
}

struct Device {
  kernels::KernelTable table = *kernels::reference_kernels();
  ModelShape target = *parse("layers=32,kv_heads=8,head_dim=128,params=8e9"), draft = *parse("layers=16,kv_heads=8,head_dim=64,params=1e9");
  LoadOptions options;
  Device() { table.host_memory = false; }
  static Result<ModelShape> parse(const char* text) { return parse_shape(text, 16, false); }
  DraftNeeds needs(int executors = 1) const { return draft_needs(*plan_without_cache(draft, table, draft_options(options, "small.gguf", 0)), executors); }
  Result<MemoryPlan> plan(uint64_t available, const DraftNeeds& n) const { return plan_memory(target.weights, target.spec, table, options, available, n); }
};

TEST(CacheShare, APlanLeavesADeviceRoomForItsDraftModel) {
  Device d;
  const uint64_t available = uint64_t{60} << 30;
  const MemoryPlan alone = *d.plan(available, {});
  EXPECT_EQ(alone.draft_blocks, 0);
  for (int executors : {1, 2}) {
    const DraftNeeds n = d.needs(executors);
    const MemoryPlan p = *d.plan(available, n);
    EXPECT_LT(p.total_blocks, alone.total_blocks);
    EXPECT_EQ(p.draft_blocks, p.total_blocks);
    EXPECT_EQ(p.draft_bytes, d.draft.weights.packed_bytes + n.step_bytes);
    EXPECT_EQ(p.draft_kv_bytes, uint64_t(p.draft_blocks) * 16 * n.kv_bytes_per_token);
    EXPECT_LE(p.total() + kDeviceReserve, available);
    EXPECT_GT(p.total() + kDeviceReserve + 16 * (p.kv_bytes_per_token + n.kv_bytes_per_token), available);
  }
  EXPECT_EQ(d.plan(uint64_t{19} << 30, d.needs()).error().field, "--draft");
  EXPECT_TRUE(d.plan(uint64_t{19} << 30, {}).ok());
  EXPECT_EQ(d.plan(uint64_t{4000} << 30, d.needs())->total_blocks, 64 * 8192 / 16);  // never more than sequences could use
}

TEST(CacheShare, APlansOwnCacheLeavesTheDraftModelTheRest) {
  Device d;
  const uint64_t available = uint64_t{60} << 30;
  d.options.kv_memory = "8GiB";
  const MemoryPlan alone = *d.plan(available, {}), p = *d.plan(available, d.needs());
  EXPECT_EQ(p.kv_bytes, alone.kv_bytes);
  EXPECT_EQ(p.draft_blocks, p.total_blocks);
  d.options.kv_memory = "39GiB";
  const MemoryPlan large = *d.plan(available, d.needs());
  EXPECT_LT(large.draft_blocks, large.total_blocks);
  EXPECT_LE(large.total() + kDeviceReserve, available);
  d.options.kv_memory = "45GiB";
  const auto over = d.plan(available, d.needs());
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().field, "--kv-memory");
}

// A host's draft model gets its part when it is loaded, so nothing is kept for it.
TEST(CacheShare, AHostLeavesNothing) {
  LoadOptions o;
  o.random = "llama-tiny";
  SpeculateOptions s;
  s.draft = "random:llama-tiny";
  EXPECT_EQ(draft_needs(o, s)->kv_bytes_per_token, 0u);
  EXPECT_EQ(draft_options(o, s.draft, 700).random, "llama-tiny");
  EXPECT_EQ(draft_options(o, s.draft, 700).random_vocab, 700);
  EXPECT_EQ(draft_options(o, "small.gguf", 700).model, "small.gguf");
  EXPECT_EQ(draft_options(o, "small.gguf", 700).random, "");
}

}  // namespace
}  // namespace sluice::lab
