// Layouts in which matrices of layers are written quantised (HfWriteOptions::layout), as other programs read them: GPTQ, AWQ, and FP8
// (one scale a row or for the whole matrix as compressed-tensors has it, or a grid of blocks). A matrix is asked for when its first tensor is written
// and dropped with its last, so one at a time is in memory.
#pragma once
#include <functional>
#include <span>

#include "format/hf_writer.h"
#include "quant/grouped.h"

namespace sluice::format {

// The matrix in the order of our rows, of the bits, group and blocks that the layout announces. Its errors end the writing.
using GroupedSource = std::function<Result<quant::GroupedMatrix>(const TensorEntry&)>;
using Fp8Source = std::function<Result<quant::Fp8Matrix>(const TensorEntry&)>;
// Which matrices; those it refuses, and those whose sizes the layout cannot hold, stay floats.
using TensorChoice = std::function<bool(const TensorEntry&)>;

struct GptqLayout {
  int bits = 4, group = 128;    // 2..8; see common_group
  bool symmetric = true;        // then zeros are stored less 1, as the format's first version has it, else as they are (gptq_v2)
  bool activation_order = false;
};
HfMatrixLayout gptq_layout(const GptqLayout& layout, TensorChoice chosen, GroupedSource source);
// 4 bits with zeros.
HfMatrixLayout awq_layout(int group, TensorChoice chosen, GroupedSource source);

enum class Fp8Scales { kTensor, kChannel, kBlock };  // kBlock: 128 x 128
// Rows and columns of a matrix that share a scale.
struct Fp8Block { int rows, cols; };
Fp8Block fp8_block(Fp8Scales scales, int rows, int cols);
// Where the file has rows of a matrix in another order that mixes blocks, the source is asked for a matrix of rows in that order;
// model_order: it has the model's order alone, and such a matrix is kUnsupported.
HfMatrixLayout fp8_layout(Fp8Scales scales, TensorChoice chosen, Fp8Source source, bool model_order = false);

// The largest of wanted, 64 and 32 (not above wanted) that divides the rows of all chosen matrices; 0: none does.
int common_group(std::span<const TensorEntry> tensors, int wanted, const TensorChoice& chosen);

}  // namespace sluice::format
