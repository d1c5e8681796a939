// StopMatcher: finds stop strings in streamed bytes. Holds back the longest suffix that could still become a stop; the
// earliest completed match wins (the longest stop among those that end at the same byte). O(1) amortised a byte
// (Aho-Corasick over bytes). One matcher belongs to one thread.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

class StopMatcher {
 public:
  // Empty strings are ignored. include_stop keeps the matched stop in the released text.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);
  StopMatcher(StopMatcher&&) noexcept;
  StopMatcher& operator=(StopMatcher&&) noexcept;
  ~StopMatcher();

  // Feeds bytes; returns those that are now safe to show. After a match returns nothing more.
  std::string push(std::string_view bytes);
  // Releases what is held back (the sequence ended for another reason).
  std::string finish();
  bool matched() const;
  // The stop that matched; empty before.
  const std::string& matched_stop() const;

 private:
  struct Automaton;
  std::unique_ptr<Automaton> automaton_;
};

}  // namespace sluice::text
