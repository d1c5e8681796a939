#include "apps/model_flags.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <unistd.h>

#include "model/random_model.h"

namespace sluice::apps {

void declare_model(Flags& f, lab::LoadOptions& o) {
  f.add("model", o.model, "a .gguf file, a folder of safetensors, or a name in the local store");
  declare_random(f, o);
  f.add("-o,--threads", o.threads, "worker threads (0: every core)");
  f.add("--device", o.device, "cpu, cuda or cuda:N");
  f.add("--deterministic", o.deterministic, "results independent of the batch, where a backend does not give that anyway");
  f.add("--isa", o.isa, "avx2, avxvnni, avx512, avx512bf16 or reference: forces lower kernels");
  f.add("--pin-threads", o.pin_threads, "one core a worker");
  f.add("--kv-type", o.kv_type, "what the cache keeps: f32, f16, bf16, fp8, int8, int4, KEYS/VALUES of these, or k8v4 and the like");
  f.add("--kv-memory", o.kv_memory, "memory for the cache, such as 2GiB");
  f.add("--swap-memory", o.swap_memory, "memory of the host for the blocks of preempted sequences, where that is sooner than computing them again");
  f.add("--block-tokens", o.block_tokens, "tokens a cache block, a multiple of 16 (0: 16, or 64 where keys are int4)");
  f.add("--max-sequences", o.max_sequences, "sequences that run at once");
  f.add("--max-step-tokens", o.max_step_tokens, "tokens a step, prompts' chunks included (0: 512 on a host, 2048 on a device, 4096 there for throughput)");
  f.add("--objective", o.objective, "latency: prompts go in chunks that keep gaps even; throughput: as they come");
  f.add("--step-ms", o.step_ms, "time that prompts may make of a step while interactive requests are there (0: as the objective says)");
  f.add("--depth", o.depth, "steps in flight, 1 or 2 (0: 2 on a device, 1 on a host)");
  f.add("--no-graphs", o.no_graphs, "launch every kernel of a step by itself");
  f.add("--context", o.context, "tokens a sequence may reach (0: the model's own limit)");
}

void declare_random(Flags& f, lab::LoadOptions& o) {
  f.add("--random", o.random, "random weights in place of a model: " + model::random_shapes());
  f.add("--weight-type", o.weight_type, "of random weights: bf16, f16, q8_0, q4_0, q4_k, ...");
  f.add("--weight-seed", o.weight_seed, "of random weights");
  f.add("--save", o.save, "write the random weights to this .gguf file, or to a folder of safetensors");
}

void declare_speculation(Flags& f, lab::SpeculateOptions& o) {
  f.add("--draft", o.draft, "a smaller model of the same vocabulary, to draft for this one");
  f.add("--speculate", o.mode, "off, ngram (look up in the prompt, the output and earlier requests), draft (the draft model) or auto (all, where it pays; the default with --draft)");
  f.add("--verify", o.verify, "coupled: texts are those without drafts; rejection: more drafts stand at high temperatures, texts depend on them (host only)");
  f.add("--max-drafts", o.max_drafts, "tokens that a sequence may be drafted in a step");
}

LoadProgress load_progress() {
  if (!::isatty(STDERR_FILENO)) return nullptr;
  return [shown = -1](size_t done, size_t total) mutable {
    const int percent = total ? int(100 * done / total) : 100;
    if (percent == shown) return;
    shown = percent;
    std::fprintf(stderr, "\rloading %3d %% [%-20.*s]", percent, percent / 5, "####################");
    if (percent == 100) std::fprintf(stderr, "\r\033[K");
  };
}

Result<lab::LoadedModel> load_with_progress(const lab::LoadOptions& options, const lab::DraftNeeds& draft) {
  return lab::load_model(options, load_progress(), draft);
}

Result<std::string> read_text_file(const std::string& path) {
  std::stringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{ErrorCode::kNotFound, path + ": cannot be read", "-f"};
  text << in.rdbuf();
  return text.str();
}

Result<std::vector<int32_t>> parse_ids(const std::string& text, int vocab, const std::string& field) {
  std::vector<int32_t> ids;
  const char* p = text.c_str();
  while (*p) {
    char* end = nullptr;
    const long id = std::strtol(p, &end, 10);
    if (end == p) return invalid("'" + std::string(p).substr(0, 20) + "' is no token id", field);
    if (id < 0 || id >= vocab) return invalid("token id " + std::to_string(id) + " is outside the vocabulary 0.." + std::to_string(vocab - 1), field);
    ids.push_back(int32_t(id));
    p = end;
    while (*p == ',' || *p == ' ' || *p == '\n') ++p;
  }
  return ids;
}

}  // namespace sluice::apps
