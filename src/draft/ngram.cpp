#include "draft/ngram.h"

namespace sluice::draft {

int grade_of(int run) { return run >= LookupTable::kRuns[0] ? 2 : run >= LookupTable::kRuns[1] ? 1 : 0; }

Status Ngram::propose(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (wanted[i] < 0) continue;
    const std::span<const TokenId> known = slots[i].history;
    Text& text = texts_.try_emplace(slots[i].sequence, known.size() + size_t(wanted[i])).first->second;
    // The run at the very end has nothing behind it yet.
    for (; text.added < known.size(); ++text.added) text.table.add(known, text.added);
    if (wanted[i] == 0) continue;
    const LookupTable::Match match = text.table.find(known, known);
    if (match.length == 0) continue;
    copy_on(known, match.at, wanted[i], proposals[i].tokens);
    proposals[i].grade = grade_of(match.length);
  }
  return {};
}

}  // namespace sluice::draft
