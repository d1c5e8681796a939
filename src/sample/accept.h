// accept: which drafts stand, by coupled sampling (arXiv:2408.07978). The target draws its own token at every position, with the
// noise of that position (noise.h); a draft is accepted when it is that very token. So what a request gets is what the target
// alone would have given it, whatever was drafted, and of drafts from the same noise most are right.
// Pure; any thread; no errors.
#pragma once
#include <cstdint>
#include <span>

#include "sample/sampling_params.h"

namespace sluice::sample {

// drafts [k]; drawn [k + 1]: the target's token after what is known and i drafts. Returns how many drafts stand, a: the tokens
// that follow are drawn[0..a], the last of which is the target's word after the last draft that stands.
inline int accepted_prefix(std::span<const int32_t> drafts, std::span<const SampledToken> drawn) {
  size_t a = 0;
  while (a < drafts.size() && drawn[a].token == drafts[a]) ++a;
  return int(a);
}

}  // namespace sluice::sample
