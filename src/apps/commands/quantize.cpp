// sluice quantize: writes a model in fewer bits.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "lab/quantize.h"
#include "lab/quantize_folder.h"
#include "quant/mixes.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;
std::atomic<bool> g_stop{false};

class Quantize final : public Invocation {
 public:
  void declare(Flags& f) override {
    f.add("in", o_.input, "a .gguf file, a folder of safetensors, or a name in the local store", true);
    f.add("out", o_.output, "the .gguf file to write; the folder, for types of safetensors", true);
    f.add("--type", o_.type, quant::mix_names() + "; in a folder of safetensors " + lab::folder_type_names());
    f.add("--calibrate", o_.calibrate, "a text such as the model will see: weights count by what they are multiplied with on it");
    f.add("--method", o_.method, "rtn (search for the least error of the weights), imatrix (of the outputs, column by column, on the calibration text; the default with one), gptq (columns make up for each other's errors: slower, nearer; the default of gptq and fp8 types with a text) or awq (columns that matter are scaled up first; awq4's)");
    f.add("--keep", o_.keep, "REGEX=TYPE: tensors whose name matches get this type; may stand several times");
    f.add("--window", o_.window, "tokens of the calibration text that are read together");
    f.add("--max-tokens", o_.max_tokens, "of the calibration text that are read, from its beginning (0: all)");
    f.add("--requantize", o_.requantize, "take a model that is quantised already, at the cost of rounding its weights twice");
    f.add("-o,--threads", o_.threads, "worker threads (0: every core)");
    f.add("--isa", o_.isa, "avx2, avxvnni, avx512, avx512bf16 or reference: forces lower kernels for calibration");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice quantize model-f16.gguf model-q4_k_m.gguf --type q4_k_m --calibrate prompts.txt");
  }

  Result<int> run(const Flags&) override {
    std::signal(SIGINT, [](int) { g_stop = true; });
    std::signal(SIGTERM, [](int) { g_stop = true; });
    o_.stop = &g_stop;
    o_.note = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    o_.progress = [terminal = ::isatty(STDERR_FILENO) != 0, last = std::chrono::steady_clock::time_point{}](const lab::QuantizeProgress& p) mutable {
      const auto now = std::chrono::steady_clock::now();
      if (now - last < std::chrono::milliseconds(terminal ? 100 : 2000)) return;
      last = now;
      char left[32] = "";
      if (p.seconds_left >= 0) std::snprintf(left, sizeof left, ", %.0f s left", p.seconds_left);
      std::fprintf(stderr, terminal ? "\r\033[K%3.0f %%%s  %s" : "%3.0f %%%s  %s\n", 100 * p.done, left, p.what.c_str());
    };
    auto r = lab::quantize(o_);
    if (::isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
    if (!r.ok()) return r.error();
    if (json_) std::cout << json_of(*r).dump() << "\n";
    else print(*r);
    return 0;
  }

 private:
  static Json json_of(const lab::QuantizeReport& r) {
    Json types = Json::array();
    for (const lab::QuantizedType& t : r.types) types.push_back({{"type", t.name}, {"tensors", t.tensors}, {"parameters", t.parameters}, {"bytes", t.bytes}});
    return {{"in_bytes", r.in_bytes}, {"out_bytes", r.out_bytes}, {"bits_per_weight", r.bits_per_weight}, {"seconds", r.seconds}, {"method", r.method},
            {"calibration_tokens", r.calibration_tokens}, {"calibration_seconds", r.calibration_seconds}, {"relative_error", r.relative_error}, {"resumed", r.resumed}, {"types", types}};
  }
  void print(const lab::QuantizeReport& r) const {
    std::printf("%s: %.1f MB of %.1f, %.3f bits a weight, %s, relative error %.4f, %.1f s", o_.output.c_str(), double(r.out_bytes) / 1e6, double(r.in_bytes) / 1e6, r.bits_per_weight,
                r.method.c_str(), r.relative_error, r.seconds);
    if (r.calibration_tokens > 0) std::printf(" (%.1f of them to read %d tokens)", r.calibration_seconds, r.calibration_tokens);
    std::printf("\n");
    for (const lab::QuantizedType& t : r.types) std::printf("  %-7s %4d tensors %10.1f M weights %9.1f MB\n", t.name.c_str(), t.tensors, double(t.parameters) / 1e6, double(t.bytes) / 1e6);
  }

  lab::QuantizeOptions o_;
  bool json_ = false;
};

}  // namespace

extern const Command command_quantize{"quantize", "a model in fewer bits", [] { return std::unique_ptr<Invocation>(new Quantize); }};

}  // namespace sluice::apps
