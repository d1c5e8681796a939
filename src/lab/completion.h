// One completion driven in the caller's thread: the scheduler and the executor of the server, without its engine thread.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "draft/speculator.h"
#include "lab/loaded_model.h"

namespace sluice::lab {

struct Completion {
  std::vector<int32_t> ids;
  std::string text;
  std::string finish_reason;                   // stop, length
  double ttft_s = 0, decode_tok_s = 0;
  int drafted = 0, accepted = 0;               // draft tokens verified, and of them accepted
  int decode_steps = 0;                        // after the one that gave the first token
  std::vector<std::pair<int32_t, float>> top;  // with logits: the 20 largest of the last prompt position
  std::vector<double> nll;                     // with logits: of every prompt token but the first
};

class CompletionRunner {
 public:
  // speculator: or null.
  CompletionRunner(LoadedModel& model, std::unique_ptr<exec::DeviceExecutor> executor, std::shared_ptr<draft::Speculator> speculator = nullptr);
  ~CompletionRunner();
  void set_speculator(std::shared_ptr<draft::Speculator> speculator) { speculator_ = std::move(speculator); }
  // Errors: kContextLength. on_text gets whole UTF-8 characters as they come; it returns false to stop early.
  Result<Completion> run(sched::Submission submission, bool want_logits, const std::function<bool(std::string_view)>& on_text);

 private:
  Status step(sched::StepResult& result, sched::StepOutcome& outcome);
  void score_prompt(const std::vector<int32_t>& prompt, Completion& out);

  LoadedModel& model_;
  std::unique_ptr<exec::DeviceExecutor> executor_;
  std::shared_ptr<draft::Speculator> speculator_;
  sched::Scheduler scheduler_;
  SteadyClock clock_;
};

}  // namespace sluice::lab
