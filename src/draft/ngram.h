// Ngram: a sequence that repeats what stands in its own prompt or output (an edited file, an extract, a loop) is drafted from
// there: what followed the last place where its latest tokens stood. Grade: by the length of the run that was found.
#pragma once
#include <unordered_map>

#include "draft/lookup_table.h"
#include "draft/proposer.h"

namespace sluice::draft {

class Ngram final : public Proposer {
 public:
  Status propose(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals) override;
  void forget(uint64_t sequence) override { texts_.erase(sequence); }

 private:
  struct Text {
    explicit Text(size_t tokens) : table(tokens) {}
    LookupTable table;
    size_t added = 1;  // runs that end before this token are in the table
  };
  std::unordered_map<uint64_t, Text> texts_;
};

// 2, 1, 0 for runs of 8, 4, 2 tokens.
int grade_of(int run);

}  // namespace sluice::draft
