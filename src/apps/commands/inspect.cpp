// sluice inspect: what a file holds, and which kernel each tensor gets.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

class Inspect final : public Invocation {
 public:
  void declare(Flags& f) override {
    f.add("file", load_.model, "a .gguf file, a folder of safetensors, or a name in the local store", true);
    f.add("--isa", load_.isa, "avx2, avxvnni, avx512, avx512bf16 or reference");
    f.add("--tensors", tensors_, "list every tensor");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice inspect smollm2.gguf");
  }

  Result<int> run(const Flags&) override {
    SLUICE_ASSIGN(const kernels::KernelTable* table, lab::choose_kernels(load_));
    const std::string path = lab::resolve_model(load_.model);
    std::error_code ec;
    SLUICE_ASSIGN(auto file, format::open_model(path));
    struct ByType { int64_t tensors = 0, parameters = 0, bytes = 0; std::string kernel; };
    std::map<std::string, ByType> types;
    int64_t parameters = 0, bytes = 0;
    Json tensors = Json::array();
    for (const format::TensorEntry& t : file->tensors()) {
      const std::string type = t.weight_format ? t.weight_format->name : "ggml type " + std::to_string(t.type_id);
      ByType& b = types[type];
      ++b.tensors;
      b.parameters += t.elements();
      b.bytes += int64_t(t.file_bytes());
      const bool fits = t.weight_format && t.rows() < (1 << 30) && t.cols() < (1 << 30) && table->packed_bytes(t.weight_format->type, int(t.rows()), int(t.cols())) > 0;
      b.kernel = fits ? std::string(table->name) + " linear " + type : "none";
      parameters += t.elements();
      bytes += int64_t(t.file_bytes());
      tensors.push_back({{"name", t.name}, {"type", type}, {"dims", t.dims}, {"bytes", t.file_bytes()}});
    }
    Json metadata;
    for (const auto& [key, value] : file->metadata().all()) metadata[key] = format::describe(value);
    Json kernels;
    for (const auto& [type, b] : types) kernels[type] = b.kernel;
    const double bits = parameters ? 8.0 * double(bytes) / double(parameters) : 0;
    const std::string architecture = file->metadata().string_or("general.architecture", "");
    if (json_) {
      Json j{{"format", std::filesystem::is_directory(path, ec) ? "safetensors" : "gguf"}, {"architecture", architecture}, {"parameters", parameters}, {"bits_per_weight", bits},
             {"file_bytes", file->file_bytes()}, {"tensors", tensors}, {"metadata", metadata},
             {"chat_template", file->metadata().string_or("tokenizer.chat_template", "")}, {"kernels", kernels}};
      std::cout << j.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
      return 0;
    }
    std::printf("%-14s %s\n%-14s %.1f million\n%-14s %.3f\n%-14s %.1f MB\n\n", "architecture", architecture.c_str(), "parameters", double(parameters) / 1e6, "bits a weight", bits, "file", double(file->file_bytes()) / 1e6);
    std::printf("%-10s %8s %14s %12s  %s\n", "type", "tensors", "parameters", "bytes", "kernel");
    for (const auto& [type, b] : types) std::printf("%-10s %8ld %14ld %12ld  %s\n", type.c_str(), b.tensors, b.parameters, b.bytes, b.kernel.c_str());
    std::printf("\n");
    for (const auto& [key, value] : file->metadata().all()) std::printf("%-44s %s\n", key.c_str(), format::describe(value).c_str());
    if (tensors_)
      for (const auto& t : tensors) std::printf("%-40s %-6s %s\n", t["name"].get<std::string>().c_str(), t["type"].get<std::string>().c_str(), t["dims"].dump().c_str());
    return 0;
  }

 private:
  lab::LoadOptions load_;
  bool json_ = false, tensors_ = false;
};

}  // namespace

extern const Command command_inspect{"inspect", "what a model file holds", [] { return std::unique_ptr<Invocation>(new Inspect); }};

}  // namespace sluice::apps
