#include "lab/pools.h"

#include <gtest/gtest.h>

namespace sluice::lab {
namespace {

TEST(Pools, Words) {
  auto pools = parse_pools({"interactive:kv=1GiB,threads=2,alias=fast,alias=quick", "batch:max_sequences=128,step_ms=50,weight=0.5,kv_type=bf16"});
  ASSERT_TRUE(pools.ok()) << pools.error().message;
  const PoolSpec &a = (*pools)[0], &b = (*pools)[1];
  EXPECT_EQ(a.name, "interactive");
  EXPECT_EQ(a.kv_memory, "1GiB");
  EXPECT_EQ(a.threads, 2);
  EXPECT_EQ(a.aliases, (std::vector<std::string>{"fast", "quick"}));
  EXPECT_EQ(a.takes, (std::array<bool, 2>{true, false}));
  EXPECT_EQ(b.objective, "throughput");
  EXPECT_EQ(b.max_sequences, 128);
  EXPECT_EQ(b.step_ms, 50);
  EXPECT_EQ(b.weight, 0.5);
  EXPECT_EQ(b.kv_type, "bf16");
  EXPECT_EQ(b.takes, (std::array<bool, 2>{false, true}));
  EXPECT_EQ((*parse_pools({"one"}))[0].takes, (std::array<bool, 2>{true, true}));  // what no pool takes the first does
  EXPECT_EQ((*parse_pools({"a:class=both", "b"}))[1].takes, (std::array<bool, 2>{true, false}));
}

TEST(Pools, ErrorsNameTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "name"}, {"a b", "name"}, {":threads=1", "name"}, {"a:threads", "key=value"}, {"a:threads=0", "threads"}, {"a:threads=x", "threads"},
      {"a:weight=nan", "weight"}, {"a:weight=-1", "weight"}, {"a:size=3", "size"}, {"a:class=all", "class"}, {"a:devices=0,1", "several devices"},
      {"a:kv=", "kv"}, {"a:step_ms=1e9", "step_ms"}, {"a:max_sequences=99999", "max_sequences"}};
  for (const auto& [text, word] : cases) {
    auto pools = parse_pools({text});
    ASSERT_FALSE(pools.ok()) << text;
    EXPECT_EQ(pools.error().field, "--pool");
    EXPECT_NE(pools.error().message.find(word), std::string::npos) << text << ": " << pools.error().message;
  }
  EXPECT_FALSE(parse_pools({"a", "a"}).ok());
  EXPECT_FALSE(parse_pools({"a:alias=x", "b:alias=x"}).ok());
  EXPECT_FALSE(parse_pools(std::vector<std::string>(17, "a")).ok());
}

TEST(Pools, CoresAreDisjointWhereThreadsAreToldAndSharedElsewhere) {
  const std::vector<int> cores{0, 1, 4, 5};
  auto told = share_cores(*parse_pools({"a:threads=1", "b:threads=3"}), cores);
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(*told, (std::vector<std::vector<int>>{{0}, {1, 4, 5}}));
  auto mixed = share_cores(*parse_pools({"a", "b:threads=1", "c"}), cores);
  ASSERT_TRUE(mixed.ok());
  EXPECT_EQ(*mixed, (std::vector<std::vector<int>>{{1, 4, 5}, {0}, {1, 4, 5}}));
  EXPECT_FALSE(share_cores(*parse_pools({"a:threads=2", "b:threads=3"}), cores).ok());
  EXPECT_FALSE(share_cores(*parse_pools({"a:threads=4", "b"}), cores).ok());
}

}  // namespace
}  // namespace sluice::lab
