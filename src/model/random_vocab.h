// A vocabulary for models of random weights: every byte, <|bos|>, <|eos|>, common words after a space (and what their merges
// pass through), and made-up words up to `size` tokens. A text of common_words() is about a token a word.
#pragma once
#include <span>

#include "format/metadata.h"

namespace sluice::model {

std::span<const char* const> common_words();

constexpr int kLeastVocab = 512;
// size >= kLeastVocab. Adds the tokenizer's keys and a chat template.
void add_random_vocab(format::Metadata& metadata, int size);

}  // namespace sluice::model
