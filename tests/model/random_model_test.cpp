// Random weights: every type's spread, distinct matrices, a vocabulary that the tokenizer takes.
#include "model/random_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/model_spec.h"
#include "model/random_vocab.h"
#include "model/vocab.h"

namespace sluice::model {
namespace {

std::shared_ptr<const format::WeightFile> tiny(const std::string& type, uint64_t seed = 1, int threads = 2) {
  RandomModelOptions o;
  o.shape = "llama-tiny";
  o.weight_type = type;
  o.seed = seed;
  o.threads = threads;
  auto file = make_random_model(o);
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  return file.ok() ? *file : nullptr;
}

std::vector<float> values(const format::TensorEntry& t) {
  std::vector<float> v(size_t(t.elements()));
  t.weight_format->decode(t.bytes.data(), v.data(), v.size());
  return v;
}

TEST(RandomModel, EveryTypeHasTheWantedSpread) {
  for (const quant::WeightFormat* f : quant::formats_table()) {
    const auto file = tiny(f->name);
    ASSERT_TRUE(file);
    for (const char* name : {"token_embd.weight", "blk.1.ffn_down.weight"}) {
      double sum = 0, square = 0;
      const auto v = values(*file->find(name));
      for (float x : v) {
        sum += x;
        square += double(x) * x;
      }
      const double mean = sum / double(v.size()), deviation = std::sqrt(square / double(v.size()));
      EXPECT_NEAR(deviation, 1 / 16.0, 0.03 / 16.0) << f->name << " " << name;
      EXPECT_LT(std::abs(mean), 0.03 / 16.0) << f->name << " " << name;
    }
  }
}

TEST(RandomModel, DependsOnTheSeedAloneAndMatricesDiffer) {
  const auto a = tiny("bf16", 5, 1), b = tiny("bf16", 5, 2), c = tiny("bf16", 6);
  const auto same = [](const format::TensorEntry* x, const format::TensorEntry* y) {
    return std::equal(x->bytes.begin(), x->bytes.end(), y->bytes.begin(), y->bytes.end());
  };
  for (const format::TensorEntry& t : a->tensors()) EXPECT_TRUE(same(&t, b->find(t.name))) << t.name;
  EXPECT_FALSE(same(a->find("token_embd.weight"), c->find("token_embd.weight")));
  EXPECT_FALSE(same(a->find("blk.0.attn_k.weight"), a->find("blk.0.attn_v.weight")));
  EXPECT_FALSE(same(a->find("blk.0.ffn_up.weight"), a->find("blk.1.ffn_up.weight")));
}

TEST(RandomModel, SpecAndVocabularyAreRead) {
  RandomModelOptions o;
  o.fill = false;
  for (const char* shape : {"llama-8b", "llama-135m", "llama-1b", "llama-70b"}) {
    o.shape = shape;
    auto file = make_random_model(o);
    ASSERT_TRUE(file.ok()) << file.error().message;
    auto spec = read_spec((*file)->metadata());
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    auto tokenizer = build_tokenizer((*file)->metadata());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    std::string text;
    for (const char* word : common_words()) text += std::string(" ") + word;
    EXPECT_EQ((*tokenizer)->encode(text, {}).size(), common_words().size());
    EXPECT_EQ((*tokenizer)->size(), int((*file)->find("token_embd.weight")->rows()));
    auto chat = build_chat_template((*file)->metadata());
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    EXPECT_TRUE(*chat);
  }
}

TEST(RandomModel, NamesWhatThereIs) {
  RandomModelOptions o;
  o.shape = "llama-9b";
  auto r = make_random_model(o);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("llama-8b"), std::string::npos);
  o.shape = "llama-8b";
  o.weight_type = "q9";
  r = make_random_model(o);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("q8_0"), std::string::npos);
  o.shape = "llama-135m";  // rows of 576 are no whole number of blocks of 256
  o.weight_type = "q4_k";
  r = make_random_model(o);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("576"), std::string::npos);
}

}  // namespace
}  // namespace sluice::model
