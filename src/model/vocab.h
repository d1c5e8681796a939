// A file's tokenizer and chat template, from its metadata.
#pragma once
#include <memory>

#include "base/result.h"
#include "format/metadata.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice::model {

Result<std::shared_ptr<const text::Tokenizer>> build_tokenizer(const format::Metadata& metadata);
// nullptr when the file has none.
Result<std::shared_ptr<const text::ChatTemplate>> build_chat_template(const format::Metadata& metadata);

}  // namespace sluice::model
