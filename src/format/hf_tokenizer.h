// tokenizer.json and its companions (tokenizer_config.json, chat_template.jinja, generation_config.json) <-> the metadata that
// GGUF has of a vocabulary: tokenizer.ggml.* and tokenizer.chat_template. Byte-level BPE, and SentencePiece as BPE with byte_fallback.
// Errors: kBadFile and kUnsupported naming the file and the field.
#pragma once
#include <string>

#include "format/hf_json.h"
#include "format/metadata.h"

namespace sluice::format {

// rows: of the embedding; the vocabulary gets as many tokens, unused ones named [PADn] where the file has fewer.
Status read_hf_tokenizer(const std::string& folder, const Json& config, int64_t rows, Metadata& m);
Status write_hf_tokenizer(const std::string& folder, const Metadata& m);

}  // namespace sluice::format
