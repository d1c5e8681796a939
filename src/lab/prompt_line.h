// A prompt as one JSON object of a file of lines: "prompt" (text) or "messages" (a chat), at the top or in the "body" of a line of the
// batch API.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "lab/loaded_model.h"

namespace sluice::lab {

struct PromptLine {
  std::vector<int32_t> tokens;  // with BOS where the vocabulary wants one; may be empty
  std::string text;             // of "prompt"; empty for a chat, whose template ends it
};

// The object that holds the request: its "body", or itself.
const nlohmann::ordered_json& request_of(const nlohmann::ordered_json& line);
// where: the line's name, for errors: kBadFile, kUnsupported (a chat, and no template).
Result<PromptLine> read_prompt(const nlohmann::ordered_json& request, const LoadedModel& model, const std::string& where);

}  // namespace sluice::lab
