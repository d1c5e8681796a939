// Drafts of a chosen quality: the draft model's passes run, and as many of its guesses stand as were asked for.
#include "lab/oracle_executor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lab/bench_speculate.h"
#include "model/random_model.h"
#include "tests/lab/tiny_load.h"

namespace sluice::lab {
namespace {

TEST(Oracle, AsManyDraftsStandAsAreAskedFor) {
  auto target = load_model(tiny_load("16MiB"), nullptr);
  ASSERT_TRUE(target.ok());
  auto draft = load_draft(*target, tiny_load("16MiB"), "random:llama-tiny");
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  for (const double right : {0.5, 0.8, 1.0}) {
    SpeculateBenchOptions o;
    o.drafts = {3};
    o.max_tokens = 256;
    o.oracle = right;
    auto r = bench_speculate(*target, &*draft, {{5, 6, 7, 8}, {9, 10, 11}}, o);
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_EQ(r->differing, 0);
    EXPECT_NEAR(r->rows[0].alpha, right, 0.08) << right;
    const double a = r->rows[0].alpha, tokens = a < 1 ? (1 - std::pow(a, 4)) / (1 - a) : 4;
    EXPECT_NEAR(r->rows[0].accepted_per_step, tokens, 0.15) << right;
  }
}

TEST(Oracle, ADraftOfRandomWeightsHasTheTargetsVocabulary) {
  auto target = load_model(tiny_load("16MiB"), nullptr);
  ASSERT_TRUE(target.ok());
  auto draft = load_draft(*target, tiny_load("16MiB"), "random:llama-135m");
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  EXPECT_EQ(draft->model->spec().vocab, target->model->spec().vocab);
  EXPECT_EQ(load_draft(*target, tiny_load("16MiB"), "random:llama-0b").error().field, "--random");
  EXPECT_FALSE(model::make_random_model({.shape = "llama-tiny", .vocab = 300}).ok());
}

}  // namespace
}  // namespace sluice::lab
