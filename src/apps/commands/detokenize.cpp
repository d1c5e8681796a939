// sluice detokenize: the text of token ids.
#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"

namespace sluice::apps {
namespace {

class Detokenize final : public Invocation {
 public:
  void declare(Flags& f) override {
    f.add("model", model_, "a .gguf file, a folder of safetensors, or a name in the local store", true);
    f.add("--ids", ids_, "token ids, \"1,2,3\"", true);
    f.add("--special", special_, "show control tokens");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice detokenize smollm2.gguf --ids 19556,28,905");
  }

  Result<int> run(const Flags&) override {
    const std::string path = lab::resolve_model(model_);
    SLUICE_ASSIGN(auto file, format::open_model(path));
    auto tokenizer = model::build_tokenizer(file->metadata());
    if (!tokenizer.ok()) return Error{tokenizer.error().code, path + ": " + tokenizer.error().message, {}};
    SLUICE_ASSIGN(std::vector<int32_t> ids, parse_ids(ids_, (*tokenizer)->size(), "--ids"));
    const std::string text = (*tokenizer)->decode(ids, special_);
    if (json_) std::cout << nlohmann::ordered_json{{"text", text}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    else std::cout << text << "\n";
    return 0;
  }

 private:
  std::string model_, ids_;
  bool special_ = false, json_ = false;
};

}  // namespace

extern const Command command_detokenize{"detokenize", "the text of token ids", [] { return std::unique_ptr<Invocation>(new Detokenize); }};

}  // namespace sluice::apps
