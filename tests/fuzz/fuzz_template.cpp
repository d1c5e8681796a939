// Any bytes as a chat template: parse and render must end in a value or an error. What follows a zero byte is JSON for `documents`.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  nlohmann::ordered_json context = nlohmann::ordered_json::parse(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"é"}]},
          {"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a":[1,2.5,true,null]}}}]}],
          "tools":[{"type":"function","function":{"name":"f"}}],"bos_token":"<s>","eos_token":"</s>","add_generation_prompt":true})");
  const size_t zero = input.find('\0');
  if (zero != std::string_view::npos) {
    auto extra = nlohmann::ordered_json::parse(input.substr(zero + 1), nullptr, false);
    if (!extra.is_discarded()) context["documents"] = std::move(extra);
  }
  const auto parsed = ChatTemplate::parse(input.substr(0, zero));
  if (!parsed.ok()) return 0;
  const auto spans = (*parsed)->render(context);
  if (spans.ok()) join_spans(*spans);
  return 0;
}
