// The conformance list on every backend of this machine (SLUICE_BACKEND picks one), and what concerns several at once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "lab/kernel_check.h"
#include "lab/on_backend.h"

namespace sluice::lab {
namespace {

class Checks : public testing::TestWithParam<const KernelCheck*> {};

// With SLUICE_SEEDS, a short run: a quarter of the cases, another one on each backend.
TEST_P(Checks, Hold) {
  ASSERT_FALSE(backends().empty()) << "the backend that SLUICE_BACKEND names is not here";
  const size_t share = std::getenv("SLUICE_SEEDS") ? 4 : 1;
  size_t number = 0;
  for (const KernelTable* t : backends()) {
    ++number;
    for (const KernelCase& c : GetParam()->cases()) {
      if (++number % share != 0) continue;
      const Verdict v = run_case(c, *t);
      EXPECT_TRUE(v.passed()) << t->name << " " << c.name << ": " << (v.fault.empty() ? "error " + std::to_string(v.error) : v.fault);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(, Checks, testing::ValuesIn(checks_table().begin(), checks_table().end()),
                         [](const auto& info) { return std::string(info.param->name); });

// The list itself: a check that cannot fail would be worse than none.
TEST(ChecksList, FindsAWrongKernel) {
  static const KernelTable* const kRight = reference_kernels();
  KernelTable wrong = *kRight;
  wrong.linear = [](Context* c, const LinearArgs& a) noexcept {
    kRight->linear(c, a);
    if (a.num_tokens > 2) a.out[0].y.floats()[a.out[0].y_stride] += 0.01f;
  };
  wrong.attention = [](Context* c, const AttentionArgs& a) noexcept {
    kRight->attention(c, a);
    a.out.floats()[size_t(a.batch.num_tokens) * size_t(a.out_stride)] = 1;  // past the end
  };
  wrong.gather = [](Context*, const GatherArgs&) noexcept {};
  std::set<std::string> failed;
  for (const KernelCheck* check : checks_table())
    for (const KernelCase& c : check->cases())
      if ((c.name.find("T=3 ") != c.name.npos || c.name == "gather" || c.name.starts_with("f32 D=40")) && !run_case(c, wrong).passed()) failed.insert(check->name);
  EXPECT_EQ(failed, (std::set<std::string>{"attention", "linear", "rows"}));
}

// Sums of int8 products are exact and folded in one order. Pairs of bfloat16 are not: that set's float products stand apart.
TEST(InstructionSets, GiveTheSameProductsToTheBit) {
  std::vector<const KernelTable*> sets;
  for (const char* isa : kCpuIsas)
    if (const KernelTable* t = cpu_kernels(isa, nullptr)) sets.push_back(t);
  for (WeightType type : kAllTypes) {
    // No prologue: exp and the norm's sum are free to differ, products are not.
    Rng rng(5);
    const int tokens = 11, rows = 40, cols = 512;
    const std::vector<uint8_t> file = random_weight(rng, type, rows, cols);
    const std::vector<float> x = random_floats(rng, size_t(tokens) * cols);
    std::vector<float> first;
    for (const KernelTable* set : sets) {
      const KernelTable& t = *set;
      if (t.bf16_inputs && type == WeightType::kBF16) continue;
      const Packed w = pack_weight(t, type, rows, cols, file);
      const OnBackend<float> in(t, x), out(t, std::vector<float>(size_t(tokens) * rows));
      const ContextPtr context = make_context(t, 2);
      LinearArgs args;
      args.num_tokens = tokens;
      args.x = in.data();
      args.x_stride = cols;
      args.num_outputs = 1;
      args.out[0] = {w.weight, nullptr, out.data(), rows, false};
      t.linear(context.get(), args);
      const std::vector<float> y = out.read(context.get());
      if (first.empty()) first = y;
      EXPECT_EQ(bits_differ(first, y), 0) << t.name << " " << quant::find_format(type)->name;
    }
  }
}

TEST(Backends, AreChosenByName) {
  const char* why = nullptr;
  EXPECT_EQ(cpu_kernels("sse9", &why), nullptr);
  EXPECT_NE(why, nullptr);
  if (const KernelTable* best = cpu_kernels("", &why)) {
    EXPECT_EQ(why, nullptr);
    EXPECT_EQ(best, cpu_kernels(best->name, nullptr));
  }
  EXPECT_EQ(reference_kernels()->packed_bytes(WeightType::kQ4_K, 4, 100), 0u);  // not whole blocks
}

}  // namespace
}  // namespace sluice::lab
