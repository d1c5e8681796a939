// Scratch: what drawing a token needs beside the row itself. Whoever draws keeps one, a worker its own; reserve() makes it large
// enough for every row of so many tokens, so that drawing allocates nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::sample {

// A token and its logit. Larger logits come first, ties by smaller id, so that an order exists on every machine.
struct Candidate {
  float value;
  int32_t token;
  bool operator<(const Candidate& o) const { return value != o.value ? value > o.value : token < o.token; }
};

struct Scratch {
  std::vector<float> maxima, tops;   // of a row's blocks
  std::vector<Candidate> candidates;
  std::vector<float> kept;           // logits as they came
  void reserve(size_t vocab);
};

}  // namespace sluice::sample
