// Mixes: which type each matrix of a model gets where a file is named after one ("q4_k_m"). Matrices that errors hurt most - values,
// the way down of the feed-forward block, the head - get more bits. The sizes are those that files of these names have, so that
// files compare at equal bytes; what a tensor gets is not always what it gets there (spend_spare). Pure; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace sluice::quant {

struct Mix {
  const char* name;      // "q4_k_m"
  WeightType base;
  char size;             // 'S', 'M', or 0 where there is one mix of the type
  int file_type;         // general.file_type
};

struct MixedModel {
  int num_layers = 0;
  int heads_per_kv = 1;      // query heads a key-value head
  bool has_output = false;   // a head of its own, not the embedding
  bool calibrated = false;
};

const Mix* find_mix(std::string_view name);  // nullptr: none
std::string mix_names();                     // "q8_0, q6_k, ..."

// The type of a matrix by its tensor name ("blk.3.attn_v.weight"), with rows of so many elements. Rows that are no whole number of
// blocks get a type of nearly as many bits with blocks of 32, or f16. Without a value: it is left as it is (norms, biases).
std::optional<WeightType> mixed_type(const Mix& mix, const MixedModel& model, std::string_view name, int num_dims, int64_t cols);
// What a type becomes for rows of so many elements.
WeightType fitting_type(WeightType type, int64_t cols);

struct MixedTensor {
  std::string_view name;
  int64_t rows = 0, cols = 0;
  WeightType type{};  // as mixed_type says
};
// A head whose rows are no whole number of K-quants' blocks has eight and a half bits where six and a half were meant, and where other matrices
// have about four, two of them are worth more there: it gets six, and what that spares goes to layers in the order of what a byte was measured
// to be worth (docs/adr/0017), never more than there is. Mixes of more bits, and other models' tensors, stay as they are.
void spend_spare(const Mix& mix, const MixedModel& model, std::span<MixedTensor> tensors);

}  // namespace sluice::quant
