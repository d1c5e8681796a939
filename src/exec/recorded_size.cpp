#include "exec/recorded_size.h"

#include <algorithm>
#include <bit>

namespace sluice::exec {

int padded_sequences(int n) {
  if (n <= 8) return int(std::bit_ceil(unsigned(n)));
  const int step = std::max(8, int(std::bit_floor(unsigned(n - 1))) / 4);
  return (n + step - 1) / step * step;
}

RecordedSize recorded_size(const sched::BatchPlan& plan, int most, int most_each) {
  const int n = plan.num_sequences(), tokens = plan.num_tokens();
  if (n == 0 || tokens % n != 0 || int(plan.rows.size()) != tokens) return {};
  const int padded = padded_sequences(n), each = tokens / n;
  if (padded * each > most || (each > 1 && each > most_each)) return {};
  for (int i = 0; i <= n; ++i)
    if (plan.query_begin[size_t(i)] != i * each) return {};
  for (int i = 0; i < tokens; ++i)
    if (!plan.rows[size_t(i)].samples || plan.rows[size_t(i)].token_row != i) return {};
  return {padded, each};
}

}  // namespace sluice::exec
