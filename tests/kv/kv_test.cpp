#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "kv/block_pool.h"
#include "kv/prefix_index.h"

namespace sluice::kv {
namespace {

TEST(BlockPool, CountsAlwaysAddUpUnderRandomUse) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    BlockPool pool(50);
    std::vector<BlockId> references;  // one entry a reference that this test holds
    for (int step = 0; step < 10000; ++step) {
      const uint32_t what = rng.below(10);
      if (what < 4) {
        std::optional<BlockId> evicted;
        auto b = pool.allocate(&evicted);
        if (b) {
          if (evicted) { ASSERT_EQ(*evicted, *b); }
          references.push_back(*b);
        } else {
          ASSERT_EQ(pool.num_held(), 50);
        }
      } else if (!references.empty()) {
        const size_t i = rng.below(uint32_t(references.size()));
        const BlockId b = references[i];
        if (what < 6) {
          pool.retain(b);
          references.push_back(b);
        } else if (what < 7) {
          pool.set_indexed(b, rng.below(2) == 0);
        } else {
          pool.release(b);
          references[i] = references.back();
          references.pop_back();
        }
      }
      pool.validate();
      ASSERT_EQ(pool.num_free() + pool.num_held() + pool.num_cached(), pool.total());
    }
    for (BlockId b : references) pool.release(b);
    pool.validate();
    EXPECT_EQ(pool.num_held(), 0);
  }
}

TEST(BlockPool, EvictsTheLeastRecentlyUsed) {
  BlockPool pool(3);
  BlockId b[3];
  for (auto& x : b) {
    x = *pool.allocate(nullptr);
    pool.set_indexed(x, true);
  }
  pool.release(b[1]);
  pool.release(b[0]);
  pool.release(b[2]);
  pool.retain(b[1]);   // used again: now the newest
  pool.release(b[1]);
  std::optional<BlockId> evicted;
  EXPECT_EQ(*pool.allocate(&evicted), b[0]);
  EXPECT_EQ(*pool.allocate(&evicted), b[2]);
  EXPECT_EQ(*pool.allocate(&evicted), b[1]);
  EXPECT_FALSE(pool.allocate(&evicted));
}

TEST(PrefixIndex, FindsByContentAndHistoryAlone) {
  PrefixIndex index(16, 8);
  std::vector<int32_t> a(16, 7), b(16, 8);
  const PrefixKey root = PrefixIndex::root(0);
  const PrefixKey ka = index.extend(root, a), kab = index.extend(ka, b), kb = index.extend(root, b);
  EXPECT_TRUE(index.insert(root, ka, a, 3));
  EXPECT_FALSE(index.insert(root, ka, a, 4));  // registered already
  EXPECT_TRUE(index.insert(ka, kab, b, 5));
  EXPECT_EQ(index.find(root, ka, a), 3);
  EXPECT_EQ(index.find(ka, kab, b), 5);
  EXPECT_FALSE(index.find(root, kb, b));                    // same tokens, another history
  EXPECT_FALSE(index.find(root, ka, b));                    // a colliding key would not pass: the tokens differ
  EXPECT_FALSE(index.find(PrefixIndex::root(1), index.extend(PrefixIndex::root(1), a), a));  // another tenant
  index.erase(3);
  EXPECT_FALSE(index.find(root, ka, a));
  EXPECT_EQ(index.size(), 1u);
}

}  // namespace
}  // namespace sluice::kv
