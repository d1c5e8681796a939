// Models of random weights: a named shape's metadata, a synthetic vocabulary and tensors from a seed, as a WeightFile that
// was never a file. For benchmarks: speed does not depend on what the weights say, so long as they are not zeros.
//
// All matrices are views into one pool of random rows, each at its own offset: distinct where they are read, and made in
// a fraction of the time. Values have full mantissas and a deviation of 1/sqrt(dim), so logits are finite and near unit size.
// The vocabulary: random_vocab.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "format/weight_file.h"

namespace sluice::model {

struct RandomModelOptions {
  std::string shape;                // "llama-8b"; see random_shapes()
  std::string weight_type = "bf16"; // of matrices, by WeightFormat::name; norms are f32
  uint64_t seed = 1;
  int vocab = 0;                    // tokens, at least kLeastVocab (random_vocab.h); 0: the shape's
  int threads = 1;
  bool fill = true;                 // false: sizes only, the bytes are zeros (for plans)
};

// Errors: kInvalidArgument naming the shapes, or the types, there are; a vocabulary too small; or the matrix whose rows are no whole number of blocks.
Result<std::shared_ptr<const format::WeightFile>> make_random_model(const RandomModelOptions& options);
std::string random_shapes();  // "llama-135m, llama-1b, ..."

}  // namespace sluice::model
