// sluice run: one completion, streamed; without a prompt an interactive chat.
#include <csignal>
#include <cstdio>
#include <iostream>
#include <random>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"
#include "lab/completion.h"

namespace sluice::apps {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

class Run final : public Invocation {
 public:
  void declare(Flags& f) override {
    declare_model(f, load_);
    declare_speculation(f, speculate_);
    f.add("-p,--prompt", prompt_, "the prompt");
    f.add("-f,--file", file_, "a file with the prompt (-: standard input)");
    f.add("--ids", ids_, "the prompt as token ids, \"1,2,3\"");
    f.add("--chat", chat_, "apply the model's chat template to the prompt");
    f.add("-n,--max-tokens", max_tokens_, "tokens to generate at most");
    f.add("--temperature", temperature_, "0 is greedy");
    f.add("--top-p", top_p_, "keep the most likely tokens up to this mass");
    f.add("--top-k", top_k_, "keep this many tokens (0: all)");
    f.add("--min-p", min_p_, "keep tokens at least this likely, relative to the likeliest");
    f.add("--seed", seed_, "the same seed gives the same text");
    f.add("--ignore-eos", ignore_eos_, "go on to max-tokens");
    f.add("--logits", logits_, "with --json: top (20 largest logits after the prompt) and nll");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice run smollm2.gguf --chat -p \"What is the capital of Italy?\"");
  }

  Result<int> run(const Flags& flags) override {
    if (!(temperature_ >= 0 && temperature_ <= 2)) return invalid("outside 0..2", "--temperature");
    if (!(top_p_ > 0 && top_p_ <= 1)) return invalid("outside (0, 1]", "--top-p");
    if (!(min_p_ >= 0 && min_p_ <= 1)) return invalid("outside 0..1", "--min-p");
    if (top_k_ < 0) return invalid("below 0", "--top-k");
    SLUICE_TRY(lab::check_speculation(speculate_));
    if (max_tokens_ < 0) return invalid("below 0", "--max-tokens");
    const bool has_prompt = flags.given("--prompt") || flags.given("--file") || flags.given("--ids");
    if (!has_prompt && (json_ || !::isatty(STDIN_FILENO)))
      return invalid("give a prompt with -p, -f or --ids (the interactive chat needs a terminal)", "--prompt");
    if (!flags.given("--seed")) seed_ = std::random_device{}();
    SLUICE_ASSIGN(const lab::DraftNeeds needs, lab::draft_needs(load_, speculate_));
    SLUICE_ASSIGN(lab::LoadedModel model, load_with_progress(load_, needs));
    std::signal(SIGINT, [](int) { g_interrupted = 1; });
    const SteadyClock clock;
    SLUICE_TRY(lab::set_verification(speculate_, model));
    SLUICE_ASSIGN(auto speculator, lab::load_speculator(model, load_, speculate_, &clock));
    SLUICE_ASSIGN(auto executor, model.make_executor());
    lab::CompletionRunner runner(model, std::move(executor), std::move(speculator));
    if (!has_prompt) return chat_loop(model, runner);
    SLUICE_ASSIGN(std::vector<int32_t> prompt, prompt_ids(model, flags));
    SLUICE_ASSIGN(lab::Completion c, complete(model, runner, prompt, !json_));
    if (json_) print_json(prompt, c);
    else std::fprintf(stderr, "\n%zu prompt tokens, %zu generated, first after %.3f s, then %.1f tokens/s\n", prompt.size(), c.ids.size(), c.ttft_s, c.decode_tok_s);
    return g_interrupted ? 130 : 0;
  }

 private:
  Result<std::vector<int32_t>> prompt_ids(const lab::LoadedModel& m, const Flags& flags) {
    std::vector<int32_t> ids;
    if (flags.given("--ids")) {
      SLUICE_ASSIGN(ids, parse_ids(ids_, m.scheduler.vocab, "--ids"));
    } else {
      if (flags.given("--file")) {
        SLUICE_ASSIGN(prompt_, read_text_file(file_));
      }
      if (chat_) {
        history_ = nlohmann::ordered_json::array({{{"role", "user"}, {"content", prompt_}}});
        SLUICE_ASSIGN(ids, render(m));
      } else {
        ids = m.tokenizer->encode(prompt_, {false, true});
      }
    }
    if (ids.empty()) {  // an empty prompt begins where a text begins
      if (m.tokenizer->bos() < 0) return invalid("the prompt is empty and the model has no BOS token", "--prompt");
      ids.push_back(m.tokenizer->bos());
    }
    return ids;
  }

  Result<std::vector<int32_t>> render(const lab::LoadedModel& m) {
    if (!m.chat_template)
      return Error{ErrorCode::kUnsupported, m.chat_template_error.empty() ? "the model has no chat template" : m.chat_template_error, "--chat"};
    const auto& t = *m.tokenizer;
    nlohmann::ordered_json context{{"messages", history_}, {"add_generation_prompt", true}};
    context["bos_token"] = t.bos() >= 0 ? t.token_text(t.bos()) : "";
    context["eos_token"] = t.eos() >= 0 ? t.token_text(t.eos()) : "";
    SLUICE_ASSIGN(auto spans, m.chat_template->render(context));
    return t.encode_spans(spans, false);
  }

  Result<lab::Completion> complete(const lab::LoadedModel& m, lab::CompletionRunner& runner, const std::vector<int32_t>& prompt, bool prints) {
    sched::Submission s;
    s.prompt = prompt;
    s.max_tokens = std::min<int64_t>(max_tokens_, std::max<int64_t>(0, m.scheduler.max_context - int64_t(prompt.size())));
    s.ignore_eos = ignore_eos_;
    s.sampling.temperature = float(temperature_);
    s.sampling.top_p = float(top_p_);
    s.sampling.top_k = top_k_;
    s.sampling.min_p = float(min_p_);
    s.sampling.seed = seed_;
    return runner.run(std::move(s), logits_, [&](std::string_view piece) {
      if (prints) {
        std::fwrite(piece.data(), 1, piece.size(), stdout);
        std::fflush(stdout);
      }
      return !g_interrupted;
    });
  }

  void print_json(const std::vector<int32_t>& prompt, const lab::Completion& c) {
    nlohmann::ordered_json j{{"text", c.text}, {"ids", c.ids}, {"prompt_ids", prompt}, {"finish_reason", c.finish_reason},
                             {"prompt_tokens", prompt.size()}, {"completion_tokens", c.ids.size()},
                             {"ttft_s", c.ttft_s}, {"decode_tok_s", c.decode_tok_s}};
    if (c.drafted > 0) {
      j["drafted"] = c.drafted;
      j["accepted"] = c.accepted;
    }
    if (logits_) {
      j["top"] = c.top;
      j["nll"] = c.nll;
    }
    std::cout << j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }

  Result<int> chat_loop(lab::LoadedModel& m, lab::CompletionRunner& runner) {
    history_ = nlohmann::ordered_json::array();
    std::fprintf(stderr, "%s: an empty line or Ctrl-D ends the chat\n", m.name.c_str());
    for (std::string line; std::fprintf(stderr, "> "), std::getline(std::cin, line) && !line.empty();) {
      history_.push_back({{"role", "user"}, {"content", line}});
      auto ids = render(m);
      if (!ids.ok()) return ids.error();
      SLUICE_ASSIGN(lab::Completion c, complete(m, runner, *ids, true));
      std::fprintf(stderr, "\n");
      history_.push_back({{"role", "assistant"}, {"content", c.text}});
      if (g_interrupted) return 130;
    }
    return 0;
  }

  lab::LoadOptions load_;
  lab::SpeculateOptions speculate_;
  std::string prompt_, file_, ids_;
  bool chat_ = false, ignore_eos_ = false, logits_ = false, json_ = false;
  int max_tokens_ = 256, top_k_ = 0;
  double temperature_ = 0.8, top_p_ = 1, min_p_ = 0;
  uint64_t seed_ = 0;
  nlohmann::ordered_json history_;
};

}  // namespace

extern const Command command_run{"run", "one completion, or a chat in the terminal", [] { return std::unique_ptr<Invocation>(new Run); }};

}  // namespace sluice::apps
