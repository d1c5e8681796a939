// A vocabulary for models of random weights: every byte, <|bos|>, <|eos|>, "th", and made-up words up to `size` tokens.
#pragma once
#include "format/metadata.h"

namespace sluice::model {

// size >= 260. Adds the tokenizer's keys and a chat template.
void add_random_vocab(format::Metadata& metadata, int size);

}  // namespace sluice::model
