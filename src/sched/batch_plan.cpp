#include "sched/batch_plan.h"

#include <unordered_set>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/result.h"

namespace sluice::sched {

void BatchPlan::clear() {
  token_ids.clear();
  positions.clear();
  sequence_of.clear();
  query_begin.assign(1, 0);
  kv_len.clear();
  draft_len.clear();
  block_begin.assign(1, 0);
  block_ids.clear();
  copies.clear();
  rows.clear();
}

void BatchPlan::reserve(size_t tokens, size_t sequences, size_t blocks) {
  for (auto* v : {&token_ids, &positions, &sequence_of}) v->reserve(tokens);
  for (auto* v : {&query_begin, &kv_len, &block_begin}) v->reserve(sequences + 1);
  block_ids.reserve(blocks);
  rows.reserve(sequences);
}

void BatchPlan::validate(int total_blocks, int vocab, int rows_before) const {
  const int T = num_tokens(), S = num_sequences();
  SLUICE_CHECK(int(positions.size()) == T && int(sequence_of.size()) == T);
  SLUICE_CHECK(int(query_begin.size()) == S + 1 && int(block_begin.size()) == S + 1 && int(draft_len.size()) == S);
  SLUICE_CHECK(query_begin.front() == 0 && query_begin.back() == T);
  SLUICE_CHECK(block_begin.front() == 0 && block_begin.back() == int(block_ids.size()));
  std::unordered_set<int32_t> written;
  for (int s = 0; s < S; ++s) {
    const int begin = query_begin[s], end = query_begin[s + 1];
    SLUICE_CHECK(begin < end);
    const int first = positions[begin];
    SLUICE_CHECK(first >= 0 && first + (end - begin) == kv_len[s]);
    const int blocks = block_begin[s + 1] - block_begin[s];
    SLUICE_CHECK(blocks * block_tokens >= kv_len[s]);
    for (int t = begin; t < end; ++t)
      SLUICE_CHECK(sequence_of[t] == s && positions[t] == first + (t - begin) && token_ids[t] >= -rows_before && token_ids[t] < vocab);
    for (int b = first / block_tokens; b <= (kv_len[s] - 1) / block_tokens; ++b)
      SLUICE_CHECK(written.insert(block_ids[block_begin[s] + b]).second);
  }
  for (int32_t id : block_ids) SLUICE_CHECK(id >= 0 && id < total_blocks);
  // Nobody reads a block that another sequence writes in this step.
  for (int s = 0; s < S; ++s)
    for (int b = 0; b < positions[query_begin[s]] / block_tokens; ++b)
      SLUICE_CHECK(!written.count(block_ids[block_begin[s] + b]));
  for (const OutputRow& r : rows) SLUICE_CHECK(r.token_row >= 0 && r.token_row < T);
  validate_drafts(vocab);
}

// Drafts are known tokens behind at least one other, and each of them, and the token before the first, has a row.
void BatchPlan::validate_drafts(int vocab) const {
  std::vector<int> rows_of(size_t(num_sequences()), 0);
  for (const OutputRow& r : rows) {
    const int s = r.sequence, end = query_begin[size_t(s) + 1], k = draft_len[size_t(s)];
    if (!r.samples || k == 0) continue;
    const int i = rows_of[size_t(s)]++;
    SLUICE_CHECK(r.token_row == end - 1 - k + i && int(r.drafts.size()) == i && r.position == positions[size_t(r.token_row)] + 1);
  }
  for (int s = 0; s < num_sequences(); ++s) {
    const int k = draft_len[size_t(s)], end = query_begin[size_t(s) + 1];
    SLUICE_CHECK(k >= 0 && k <= kMaxDrafts && k < end - query_begin[size_t(s)] && rows_of[size_t(s)] == (k > 0 ? k + 1 : 0));
    for (int t = end - k; t < end; ++t) SLUICE_CHECK(token_ids[size_t(t)] >= 0 && token_ids[size_t(t)] < vocab);
  }
}

int BatchPlan::num_drafts() const {
  int n = 0;
  for (int32_t k : draft_len) n += k;
  return n;
}

uint64_t BatchPlan::hash() const {
  uint64_t h = step;
  auto mix = [&](const std::vector<int32_t>& v) { h = XXH3_64bits_withSeed(v.data(), v.size() * 4, h + v.size()); };
  for (const auto* v : {&token_ids, &positions, &query_begin, &kv_len, &block_begin, &block_ids}) mix(*v);
  if (num_drafts() > 0) mix(draft_len);  // schedules without drafts hash as they did before there were any
  for (const CopyPair& c : copies) h = XXH3_64bits_withSeed(&c, sizeof c, h);
  for (const OutputRow& r : rows) h = XXH3_64bits_withSeed(&r.token_row, 4, h);
  return h;
}

}  // namespace sluice::sched
