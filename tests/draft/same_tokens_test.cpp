// Speculation changes nothing: with every proposer, any number of drafts, any batch, cache and depth, a request's tokens, their
// log-probabilities and its end are bitwise what they are without. On tiny random models with real kernels.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "engine/engine.h"
#include "lab/speculation.h"
#include "tests/engine/tiny_model.h"

namespace sluice {
namespace {

struct Reply {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs, prompt_logprobs;
  std::string text;
  int finish = 0;
  bool operator==(const Reply&) const = default;
};

class Collector final : public sched::ResponseSink {
 public:
  explicit Collector(int n) : replies_(size_t(n)), open_(n) {}
  void push(sched::TokenEvent&& e) noexcept override {
    std::lock_guard lock(mutex_);
    Reply& r = replies_[size_t(e.choice)];
    if (e.has_token) (e.is_prompt ? r.prompt_logprobs : r.logprobs).push_back(e.sample.logprob);
    if (e.has_token && !e.is_prompt) r.tokens.push_back(e.sample.token);
    r.text += e.text;
    if (e.finish == sched::FinishReason::kNone) return;
    r.finish = int(e.finish);
    drafted_ += e.drafted;
    accepted_ += e.accepted;
    if (--open_ == 0) done_.notify_all();
  }
  std::vector<Reply> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return open_ == 0; });
    return replies_;
  }
  int drafted_ = 0, accepted_ = 0;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Reply> replies_;
  int open_;
};

struct Config {
  std::string isa = "reference", kv_type = "f16";
  int blocks = 400, block_tokens = 16, max_sequences = 16, max_step_tokens = 64, depth = 0;
  std::string mode = "off";
  int fixed = -1;
  const testing::TinyModel* draft = nullptr;
  int rounds = 1;   // the same requests so often: the later ones find a warm cache
};

struct Outcome {
  std::vector<Reply> replies;
  int drafted = 0, accepted = 0;
  uint64_t preemptions = 0;
};

lab::LoadOptions load_options(const testing::TinyModel& file, const Config& c) {
  lab::LoadOptions o;
  o.model = file.path();
  o.isa = c.isa;
  o.kv_type = c.kv_type;
  o.threads = 2;
  o.block_tokens = c.block_tokens;
  o.max_sequences = c.max_sequences;
  o.max_step_tokens = c.max_step_tokens;
  o.depth = c.depth;
  o.kv_memory = "16MiB";
  return o;
}

// Copies of its own prompt, repetitive enough for lookups, and every kind of sampling.
std::vector<sched::Submission> mixed_requests(int count) {
  std::vector<sched::Submission> out;
  for (int i = 0; i < count; ++i) {
    Rng rng(uint64_t(i) + 1);
    sched::Submission s;
    const int period = 3 + i % 5;
    std::vector<int32_t> word;
    for (int j = 0; j < period; ++j) word.push_back(int32_t(rng.below(256)));
    for (int j = 0; j < 5 + 11 * i % 70; ++j) s.prompt.push_back(word[size_t(j) % word.size()]);
    s.max_tokens = 3 + i * 7 % 41;
    s.ignore_eos = i % 3 == 0;
    s.sampling.seed = uint64_t(i);
    s.sampling.temperature = i % 2 ? 0.8f : 0.0f;
    s.sampling.num_logprobs = i % 3 - 1;
    if (i % 4 == 1) s.sampling.top_p = 0.8f;
    if (i % 4 == 3) s.sampling.top_k = 7, s.sampling.min_p = 0.05f;
    if (i % 5 == 2) s.sampling.repetition_penalty = 1.2f, s.sampling.frequency_penalty = 0.3f, s.sampling.presence_penalty = 0.1f;
    if (i % 6 == 3) s.n = 3;
    if (i % 6 == 4) s.sampling.logit_bias = {{int32_t(40 + i), 2.5f}, {int32_t(90 + i), -100.0f}};
    if (i % 7 == 4) s.prompt_logprobs = 0;
    if (i % 3 == 1) for (int t = 0; t < 256; t += 9) s.stop_token_ids.push_back(t);
    if (i % 8 == 5) s.min_tokens = 6;
    if (i % 9 == 7) s.stop = {"th", std::string(1, char('a' + i % 26))};
    if (i % 10 == 8) s.request_class = sched::RequestClass::kBatch;
    out.push_back(std::move(s));
  }
  return out;
}

Outcome run(const testing::TinyModel& file, const Config& c, int requests) {
  const lab::LoadOptions load = load_options(file, c);
  auto model = lab::load_model(load, nullptr);
  EXPECT_TRUE(model.ok());
  model->device.total_blocks = model->scheduler.total_blocks = c.blocks;
  SteadyClock clock;
  lab::SpeculateOptions s;
  s.mode = c.mode;
  s.fixed = c.fixed;
  if (c.draft) s.draft = c.draft->path();
  engine::EngineOptions options;
  options.scheduler = model->scheduler;
  auto speculator = lab::load_speculator(*model, load, s, &clock);
  EXPECT_TRUE(speculator.ok()) << (speculator.ok() ? "" : speculator.error().message);
  options.speculator = *speculator;
  engine::Engine engine(options, model->tokenizer, std::move(*model->make_executor()), &clock);
  Outcome out;
  for (int round = 0; round < c.rounds; ++round) {
    std::vector<std::shared_ptr<Collector>> collectors;
    for (sched::Submission& one : mixed_requests(requests)) {
      collectors.push_back(std::make_shared<Collector>(one.n));
      one.sink = collectors.back();
      EXPECT_TRUE(engine.submit(std::move(one)).ok());
    }
    out.replies.clear();
    for (auto& w : collectors) {
      for (Reply& r : w->wait()) out.replies.push_back(std::move(r));
      out.drafted += w->drafted_;
      out.accepted += w->accepted_;
    }
  }
  while (!engine.idle()) std::this_thread::yield();
  EXPECT_EQ(engine.stats().running, 0);
  EXPECT_EQ(engine.stats().blocks_held, 0);
  out.preemptions = engine.stats().preemptions;
  return out;
}

class Speculation : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  Speculation() {
    shape_.architecture = std::get<0>(GetParam());
    if (shape_.architecture == "gemma3") shape_.layers = 7;  // local and global layers
    target_ = std::make_unique<testing::TinyModel>(shape_, 1);
    testing::TinyShape small = shape_;
    small.layers = shape_.architecture == "gemma3" ? 7 : 1;
    other_ = std::make_unique<testing::TinyModel>(small, 2);
  }
  Config config() const {
    Config c;
    c.isa = std::get<1>(GetParam());
    return c;
  }
  testing::TinyShape shape_;
  std::unique_ptr<testing::TinyModel> target_, other_;
};

TEST_P(Speculation, AnyProposerAndNumberOfDraftsGiveTheSameReplies) {
  const std::vector<Reply> plain = run(*target_, config(), 24).replies;
  for (int k = 1; k <= 8; ++k) {
    SCOPED_TRACE("k " + std::to_string(k));
    Config c = config();
    c.fixed = k;
    c.mode = "ngram";
    const Outcome lookups = run(*target_, c, 24);
    EXPECT_EQ(lookups.replies, plain);
    EXPECT_GT(lookups.drafted, 20);
    c.mode = "draft";
    c.draft = target_.get();
    const Outcome perfect = run(*target_, c, 24);
    EXPECT_EQ(perfect.replies, plain);
    EXPECT_GT(perfect.accepted, 9 * perfect.drafted / 10) << "a draft model that is the target is nearly always right";
    c.draft = other_.get();
    const Outcome bad = run(*target_, c, 24);
    EXPECT_EQ(bad.replies, plain);
    EXPECT_LT(bad.accepted, bad.drafted / 2);
  }
}

TEST_P(Speculation, BatchesChunksCachesAndPreemptionChangeNothing) {
  const std::vector<Reply> plain = run(*target_, config(), 20).replies;
  uint64_t preemptions = 0;  // how many depends on when requests arrive
  for (const char* mode : {"ngram", "draft", "auto"}) {
    SCOPED_TRACE(mode);
    Config base = config();
    base.mode = mode;
    base.draft = std::string(mode) == "ngram" ? nullptr : other_.get();
    EXPECT_EQ(run(*target_, base, 20).replies, plain);
    for (const int sequences : {1, 2, 5}) {
      Config c = base;
      c.fixed = 4;
      c.max_sequences = sequences;
      EXPECT_EQ(run(*target_, c, 20).replies, plain) << sequences << " at once";
    }
    Config chunks = base;
    chunks.fixed = 5;
    chunks.max_step_tokens = 19;
    EXPECT_EQ(run(*target_, chunks, 20).replies, plain) << "in chunks";
    Config warm = base;
    warm.fixed = 3;
    warm.rounds = 3;
    EXPECT_EQ(run(*target_, warm, 20).replies, plain) << "with a warm cache";
    Config tight = base;
    tight.fixed = 6;
    tight.blocks = 10;
    const Outcome preempted = run(*target_, tight, 20);
    EXPECT_EQ(preempted.replies, plain) << "with preemption";
    preemptions += preempted.preemptions;
    Config ahead = base;
    ahead.fixed = 4;
    ahead.depth = 2;
    EXPECT_EQ(run(*target_, ahead, 20).replies, plain) << "running ahead";
    Config large = base;
    large.fixed = 4;
    large.block_tokens = 64;
    EXPECT_EQ(run(*target_, large, 20).replies, plain) << "with blocks of 64";
  }
  EXPECT_GT(preemptions, 0u);
}

// Drafts that are not accepted are written over, in quantised rows as in others.
TEST(SpeculationCache, RejectedDraftsLeaveNothingInQuantisedCaches) {
  const testing::TinyModel target(testing::TinyShape{}, 1), other(testing::TinyShape{}, 2);
  for (const char* type : {"fp8", "int8", "int4"})
    for (const char* isa : {"reference", ""}) {
      SCOPED_TRACE(std::string(type) + " " + isa);
      Config c;
      c.isa = isa;
      c.kv_type = type;
      const std::vector<Reply> plain = run(target, c, 12).replies;
      c.mode = "draft";
      c.fixed = 5;
      c.draft = &other;
      const Outcome drafted = run(target, c, 12);
      EXPECT_EQ(drafted.replies, plain);
      EXPECT_LT(drafted.accepted, drafted.drafted / 2);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Speculation,
                         ::testing::Combine(::testing::Values("llama", "qwen2", "gemma3"), ::testing::Values("reference", "")),
                         [](const auto& i) { return std::string(std::get<0>(i.param)) + (*std::get<1>(i.param) ? "_reference" : "_cpu"); });

TEST(SpeculationVocabulary, ADraftModelOfOtherTokensIsRefusedByName) {
  const testing::TinyModel file(testing::TinyShape{}, 3);
  const lab::LoadOptions load = load_options(file, Config());
  auto target = lab::load_model(load, nullptr);
  ASSERT_TRUE(target.ok());
  EXPECT_TRUE(lab::check_vocabularies(*target, *target).ok());
  text::VocabSpec other;
  other.model = "gpt2";
  other.pre = "gpt-2";
  other.merges = {"t h"};
  for (int i = 0; i < target->tokenizer->size(); ++i) other.tokens.push_back(i == 77 ? "elsewhere" : target->tokenizer->token_text(i));
  lab::LoadedModel draft;
  draft.name = "other";
  auto tokenizer = text::Tokenizer::build(other);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  draft.tokenizer = *tokenizer;
  const Status s = lab::check_vocabularies(*target, draft);
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("token 77 is 'elsewhere'"), std::string::npos) << s.error().message;
  lab::SpeculateOptions o;
  o.mode = "draft";
  EXPECT_FALSE(lab::check_speculation(o).ok());
  o.mode = "sometimes";
  EXPECT_FALSE(lab::check_speculation(o).ok());
}

}  // namespace
}  // namespace sluice
