// LookupTable: where the last few tokens of a text stood before. Runs of 8, 4 and 2 tokens are hashed to the place that followed
// them; a place is one word, a later one takes it over, and a hit is checked against the tokens themselves. O(1) a token, memory
// fixed at the start. One thread.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::draft {

class LookupTable {
 public:
  static constexpr int kRuns[] = {8, 4, 2};
  struct Match {
    size_t at = 0;   // of what followed the run
    int length = 0;  // 0: none was found
  };

  // For texts of about so many tokens: 12 bytes a token, at least 12 KiB, at most 384 KiB.
  explicit LookupTable(size_t tokens);
  // Takes note of the runs that end before text[end].
  void add(std::span<const int32_t> text, size_t end);
  // The longest run at the end of `tail` that stands in `text`, as it was added.
  Match find(std::span<const int32_t> text, std::span<const int32_t> tail) const;
  void clear();

 private:
  size_t slot(std::span<const int32_t> run) const;
  size_t mask_;
  std::vector<uint32_t> places_;  // a third for each length of run; 0: none
};

// What followed the match, at most `most` tokens; a token below 0 ends it. A text that runs into its own end
// goes on with what was just copied: it repeats itself. Appends.
void copy_on(std::span<const int32_t> text, size_t at, int most, std::vector<int32_t>& out);

}  // namespace sluice::draft
