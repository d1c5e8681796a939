// tokenizer.json's `pre_tokenizer` of byte-level BPE, and the names that GGUF files have for the same cuts. Pure; any thread.
#pragma once
#include <string>

#include "format/hf_json.h"

namespace sluice::format {

// The name for a pre_tokenizer and `ignore_merges`. Errors: kUnsupported quoting what has no name.
Result<std::string> name_pre_tokenizer(const Json& tokenizer);
// The pre_tokenizer of a name, and whether pieces that are tokens are left whole. Errors: kUnsupported.
struct PreTokenizerJson {
  Json pre_tokenizer;
  bool ignore_merges = false;
  bool add_bos = false;  // where the vocabulary does not say
};
Result<PreTokenizerJson> pre_tokenizer_json(const std::string& name);

}  // namespace sluice::format
