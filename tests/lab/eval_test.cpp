// eval: scores of rows against plain arithmetic, of texts against the reference kernels' own log-probabilities, and data that is cut
// and refused as its header says.
#include "lab/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <unistd.h>

#include "lab/completion.h"
#include "tests/engine/tiny_model.h"

namespace sluice::lab {
namespace {

struct File {
  File(const std::string& ending, const std::string& text) : path(::testing::TempDir() + "sluice_eval_" + std::to_string(::getpid()) + ending) {
    std::ofstream(path, std::ios::binary) << text;
  }
  ~File() { std::remove(path.c_str()); }
  std::string path;
};

std::vector<float> random_row(Rng& rng, int n, float spread) {
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = spread * (float(rng.below(1 << 20)) / float(1 << 19) - 1);
  return x;
}

double naive_lse(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += std::exp(double(v) - 30);
  return 30 + std::log(sum);
}

TEST(Eval, RowsAgreeWithPlainArithmetic) {
  Rng rng(3);
  for (const int vocab : {2, 15, 16, 17, 260, 49152}) {
    const std::vector<float> a = random_row(rng, vocab, 12), b = random_row(rng, vocab, 12);
    const int target = int(rng.below(uint32_t(vocab)));
    const TokenScore s = score_row(a.data(), b.data(), vocab, target);
    const double lse_a = naive_lse(a), lse_b = naive_lse(b);
    double kl = 0;
    for (int i = 0; i < vocab; ++i) kl += std::exp(double(b[size_t(i)]) - lse_b) * ((double(b[size_t(i)]) - lse_b) - (double(a[size_t(i)]) - lse_a));
    EXPECT_NEAR(s.nll, lse_a - double(a[size_t(target)]), 1e-5) << vocab;
    EXPECT_NEAR(s.reference_nll, lse_b - double(b[size_t(target)]), 1e-5) << vocab;
    EXPECT_NEAR(s.kl, kl, 1e-5 * (1 + kl)) << vocab;
    const auto top = [](const std::vector<float>& x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
    EXPECT_EQ(s.same_top, top(a) == top(b));
    EXPECT_EQ(s.is_top, top(a) == target);
    const TokenScore same = score_row(a.data(), a.data(), vocab, target);
    EXPECT_LT(same.kl, 1e-9);
    EXPECT_TRUE(same.same_top);
    EXPECT_DOUBLE_EQ(same.nll, same.reference_nll);
  }
}

TEST(Eval, SmallDivergencesAreNotLostInRounding) {
  Rng rng(4);
  const int vocab = 32000;
  const std::vector<float> a = random_row(rng, vocab, 8);
  std::vector<float> b = a;
  for (float& v : b) v += 0.01f * (float(rng.below(1 << 20)) / float(1 << 19) - 1);
  const double lse_a = naive_lse(a), lse_b = naive_lse(b);
  double kl = 0;
  for (int i = 0; i < vocab; ++i) kl += std::exp(double(b[size_t(i)]) - lse_b) * ((double(b[size_t(i)]) - lse_b) - (double(a[size_t(i)]) - lse_a));
  EXPECT_NEAR(score_row(a.data(), b.data(), vocab, 0).kl / kl, 1, 0.02) << kl;
}

LoadedModel tiny(const std::string& path, int step_tokens, const std::string& isa) {
  LoadOptions o;
  o.model = path;
  o.isa = isa;
  o.threads = 2;
  o.max_sequences = 4;
  o.max_step_tokens = step_tokens;
  o.kv_memory = "16MiB";
  auto m = load_model(o, nullptr);
  EXPECT_TRUE(m.ok()) << m.error().message;
  return std::move(*m);
}

std::vector<int32_t> some_tokens(int n) {
  Rng rng(9);
  std::vector<int32_t> t(static_cast<size_t>(n));
  for (int32_t& v : t) v = int32_t(rng.below(256));
  return t;
}

TEST(Eval, TextsScoreAsTheServerWouldInAnyChunks) {
  const testing::TinyModel file({.architecture = "gemma3"});
  const std::vector<int32_t> tokens = some_tokens(150);
  std::vector<TokenScore> whole;
  LoadedModel model = tiny(file.path(), 256, "");
  {
    auto scorer = TextScorer::make(model, nullptr);
    ASSERT_TRUE(scorer.ok());
    ASSERT_TRUE((*scorer)->score(tokens, 1, whole).ok());
    ASSERT_EQ(whole.size(), tokens.size() - 1);
    std::vector<TokenScore> half;
    ASSERT_TRUE((*scorer)->score(tokens, 76, half).ok());
    ASSERT_EQ(half.size(), 74u);
    EXPECT_EQ(half[0].nll, whole[75].nll);
    EXPECT_FALSE((*scorer)->score(some_tokens(600), 1, half).ok());
  }
  const LoadedModel small = tiny(file.path(), 7, "");
  auto scorer = TextScorer::make(small, &model);
  ASSERT_TRUE(scorer.ok());
  std::vector<TokenScore> chunked;
  ASSERT_TRUE((*scorer)->score(tokens, 1, chunked).ok());
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(chunked[i].nll, whole[i].nll) << i;
    EXPECT_LT(chunked[i].kl, 1e-9) << i;
  }
  auto executor = model.make_executor();
  ASSERT_TRUE(executor.ok());
  CompletionRunner runner(model, std::move(*executor));
  sched::Submission s;
  s.prompt = tokens;
  s.max_tokens = 1;
  auto c = runner.run(std::move(s), true, nullptr);
  ASSERT_TRUE(c.ok());
  ASSERT_EQ(c->nll.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(c->nll[i], whole[i].nll, 1e-5) << i;
}

TEST(Eval, OthersScoreBesideTheModelAsTheyWouldAlone) {
  const testing::TinyModel file({});
  const std::vector<int32_t> tokens = some_tokens(150);
  const LoadedModel fast = tiny(file.path(), 64, ""), exact = tiny(file.path(), 64, "reference");
  std::vector<LoadedModel> others;
  others.push_back(tiny(file.path(), 7, "reference"));
  others.push_back(tiny(file.path(), 64, ""));
  std::vector<TokenScore> alone, beside;
  auto scorer = TextScorer::make(fast, &exact);
  ASSERT_TRUE(scorer.ok());
  ASSERT_TRUE((*scorer)->score(tokens, 1, alone).ok());
  scorer = TextScorer::make(fast, &exact, others);
  ASSERT_TRUE(scorer.ok());
  std::vector<std::vector<TokenScore>> scores(others.size());
  ASSERT_TRUE((*scorer)->score(tokens, 1, beside, scores).ok());
  ASSERT_EQ(beside.size(), alone.size());
  ASSERT_EQ(scores[0].size(), alone.size());
  ASSERT_EQ(scores[1].size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(beside[i].kl, alone[i].kl) << i;
    EXPECT_EQ(scores[1][i].kl, alone[i].kl) << i;
    EXPECT_LT(scores[0][i].kl, 1e-9) << i;
    EXPECT_EQ(scores[0][i].reference_nll, alone[i].reference_nll) << i;
  }
  std::vector<TokenScore> without;
  ASSERT_TRUE((*scorer)->score(tokens, 1, without).ok());
  EXPECT_EQ(without.size(), alone.size());
}

TEST(Eval, DifferencesArePaired) {
  EvalReport r;
  r.has_reference = true;
  r.versus.resize(1);
  for (int i = 0; i < 100; ++i) {
    TokenScore a, b;
    a.kl = 0.1 * i, b.kl = 0.1 * i + 0.02 + 0.001 * (i % 2);
    a.nll = a.reference_nll = i, b.nll = i + 0.5;
    r.scores.push_back(a);
    r.versus[0].scores.push_back(b);
  }
  summarise_scores(r);
  const VersusRow& v = r.versus[0];
  EXPECT_NEAR(v.kl_difference.mean, -0.0205, 1e-9);
  EXPECT_NEAR(v.kl_difference.error, 0.0005 / std::sqrt(99.0), 1e-9);
  EXPECT_NEAR(v.kl.mean - r.kl.mean, 0.0205, 1e-9);
  EXPECT_GT(r.kl.error, 1000 * v.kl_difference.error);
  EXPECT_NEAR(v.ppl_ratio.mean, std::exp(-0.5), 1e-9);
  EXPECT_NEAR(v.ppl_ratio.error, 0, 1e-9);
}

TEST(Eval, FastKernelsAreCloseToTheReference) {
  const testing::TinyModel file({});
  const LoadedModel fast = tiny(file.path(), 64, ""), exact = tiny(file.path(), 64, "reference");
  auto scorer = TextScorer::make(fast, &exact);
  ASSERT_TRUE(scorer.ok());
  std::vector<TokenScore> scores;
  ASSERT_TRUE((*scorer)->score(some_tokens(200), 1, scores).ok());
  double most = 0;
  for (const TokenScore& s : scores) most = std::max(most, s.kl);
  EXPECT_GT(most, 0);      // the products round their inputs
  EXPECT_LT(most, 1e-3);
}

TEST(Eval, CutsATextIntoWindows) {
  const testing::TinyModel file({});
  const LoadedModel model = tiny(file.path(), 64, "");
  std::string text;
  for (int i = 0; i < 333; ++i) text += char('a' + i % 26);
  const File data(".txt", text);
  auto d = read_eval_data({.path = data.path, .context = 100}, model);
  ASSERT_TRUE(d.ok()) << d.error().message;
  const auto all = model.tokenizer->encode(text, {.parse_special = false, .add_bos = true});
  ASSERT_EQ(d->texts.size(), all.size() / 100);
  for (size_t i = 0; i < d->texts.size(); ++i) {
    const EvalText& t = d->texts[i];
    ASSERT_EQ(t.tokens.size(), 100u);
    EXPECT_EQ(t.first, 51);
    EXPECT_EQ(t.place, int64_t(i) * 100);
    EXPECT_TRUE(std::equal(t.tokens.begin() + 1, t.tokens.end(), all.begin() + std::ptrdiff_t(i) * 100 + 1));
    EXPECT_EQ(t.tokens[0], model.tokenizer->add_bos() ? model.tokenizer->bos() : all[i * 100]);
  }
  d = read_eval_data({.path = data.path, .context = 100, .tokens = 60}, model);
  ASSERT_TRUE(d.ok());
  ASSERT_EQ(d->texts.size(), 2u);
  EXPECT_EQ(int(d->texts[1].tokens.size()) - d->texts[1].first, 60 - 49);
  d = read_eval_data({.path = data.path, .context = 400}, model);
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->texts.at(0).first, 1);
  EXPECT_FALSE(read_eval_data({.path = data.path, .context = 2}, model).ok());
  EXPECT_FALSE(read_eval_data({.path = data.path, .context = 100000}, model).ok());
}

TEST(Eval, ReadsTasksAndNamesTheLineThatIsWrong) {
  const testing::TinyModel file({});
  const LoadedModel model = tiny(file.path(), 64, "");
  const File good(".jsonl", R"({"prompt": "abc"}
{"prompt": "1 + 1 =", "answer": " 2", "match": "exact", "max_tokens": 4}

{"prompt": "a or b?", "choices": [" a", " b"], "answer": " b"}
{"prompt": "a or b?", "choices": [" a", " b"], "answer": 0}
)");
  auto d = read_eval_data({.path = good.path, .context = 256}, model);
  ASSERT_TRUE(d.ok()) << d.error().message;
  ASSERT_EQ(d->tasks.size(), 3u);
  EXPECT_EQ(d->tasks[0].match, Match::kExact);
  EXPECT_EQ(d->tasks[0].max_tokens, 4);
  EXPECT_EQ(d->tasks[1].right, 1);
  EXPECT_EQ(d->tasks[2].right, 0);
  EXPECT_EQ(d->tasks[2].line, 5);
  for (const EvalText& t : d->tasks[1].choices) EXPECT_EQ(t.tokens.size() - size_t(t.first), 2u);
  const std::pair<const char*, const char*> wrong[] = {
      {"[]", "line 1"}, {"{}", "neither"}, {R"({"prompt": "a", "answer": 3})", "answer"}, {R"({"prompt": "a", "answer": "b", "match": "near"})", "match"},
      {R"({"prompt": "a", "answer": "b", "max_tokens": 0})", "max_tokens"}, {R"({"prompt": "a", "answer": "b", "choices": ["b"]})", "choices"},
      {R"({"prompt": "a", "answer": "x", "choices": ["b", "c"]})", "index"}, {R"({"prompt": "a", "answer": 2, "choices": ["b", "c"]})", "index"},
      {R"({"prompt": "a", "answer": "b", "choices": ["b", ""]})", "choices[1]"}, {R"({"messages": [{"role": "user", "content": "a"}], "answer": "b"})", ""}};
  for (const auto& [line, words] : wrong) {
    const File bad(".jsonl", std::string(line) + "\n");
    auto r = read_eval_data({.path = bad.path, .context = 256}, model);
    if (!*words) continue;  // a chat: the model may have a template, or none
    ASSERT_FALSE(r.ok()) << line;
    EXPECT_NE(r.error().message.find(words), std::string::npos) << r.error().message;
  }
  const File long_line(".jsonl", "{\"prompt\": \"" + std::string(2000, 'x') + "\"}\n");
  auto r = read_eval_data({.path = long_line.path, .context = 256}, model);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::kContextLength);
}

TEST(Eval, GatesAndEstimates) {
  auto g = parse_gate("kl=0.05,top1=0.95,ppl_ratio=1.02");
  ASSERT_TRUE(g.ok());
  ASSERT_EQ(g->size(), 3u);
  EXPECT_EQ(g->at(1).limit, 0.95);
  for (const char* wrong : {"kl", "kl=", "kl=x", "kl=1x", "lk=1", "kl=nan", "kl=0.1,,"}) EXPECT_FALSE(parse_gate(wrong).ok()) << wrong;
  const Estimate e = estimate({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(e.mean, 2.5);
  EXPECT_NEAR(e.error, std::sqrt(1.25 / 3), 1e-12);
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.5), 3);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace sluice::lab
