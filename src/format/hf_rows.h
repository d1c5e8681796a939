// Rows of q and k between two conventions of rotation: pairs (2i, 2i + 1), as GGUF's llama has them, and (i, i + head_dim / 2), as
// Hugging Face's files have them. Whole rows move, so any layout of a row does. Pure; any thread.
#pragma once
#include "format/weight_file.h"

namespace sluice::format {

enum class HeadOrder { kToPairs, kToHalves };

// Which row of the source stands at row j of a head of the result.
inline int64_t head_row(HeadOrder order, int64_t j, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  return order == HeadOrder::kToPairs ? j % 2 * half + j / 2 : j % half * 2 + j / half;
}

// head_dim is even and divides the rows.
TensorEntry reorder_heads(TensorEntry tensor, HeadOrder order, int64_t head_dim);

}  // namespace sluice::format
