// sluice tokenize: ids of a text.
#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"

namespace sluice::apps {
namespace {

class Tokenize final : public Invocation {
 public:
  void declare(Flags& f) override {
    f.add("model", model_, "a .gguf file, a folder of safetensors, or a name in the local store", true);
    f.add("-p,--prompt", text_, "the text");
    f.add("-f,--file", file_, "a file with the text (-: standard input)");
    f.add("--special", special_, "parse control tokens in the text");
    f.add("--bos", bos_, "add the BOS token where the vocabulary wants one");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice tokenize smollm2.gguf -p \"Hello, world\"");
  }

  Result<int> run(const Flags& flags) override {
    if (flags.given("--file")) {
      SLUICE_ASSIGN(text_, read_text_file(file_));
    }
    const std::string path = lab::resolve_model(model_);
    SLUICE_ASSIGN(auto file, format::open_model(path));
    auto tokenizer = model::build_tokenizer(file->metadata());
    if (!tokenizer.ok()) return Error{tokenizer.error().code, path + ": " + tokenizer.error().message, {}};
    const std::vector<int32_t> ids = (*tokenizer)->encode(text_, {special_, bos_});
    std::vector<std::string> pieces;
    for (int32_t id : ids) pieces.emplace_back((*tokenizer)->token_bytes(id, true));
    if (json_) {
      std::cout << nlohmann::ordered_json{{"ids", ids}, {"pieces", pieces}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      for (size_t i = 0; i < ids.size(); ++i) std::printf("%7d  %s\n", ids[i], nlohmann::json(pieces[i]).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    }
    return 0;
  }

 private:
  std::string model_, text_, file_;
  bool special_ = false, bos_ = false, json_ = false;
};

}  // namespace

extern const Command command_tokenize{"tokenize", "token ids of a text", [] { return std::unique_ptr<Invocation>(new Tokenize); }};

}  // namespace sluice::apps
