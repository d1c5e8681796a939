// Recorder: writes every input of a Scheduler to a file - submissions, cancellations, each moment it was asked for a plan, what
// steps gave and took, what StepCost knew at the start - so that the same schedule can be made again from the file alone
// (lab/replay.h). One JSON object a line; the first names the version, the options and the cost model.
// Threads: the engine's. A line that cannot be written ends the recording, not the server, and stderr says so.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "draft/speculator.h"
#include "sched/scheduler.h"

namespace sluice::engine {

class Recorder {
 public:
  static constexpr int kVersion = 3;  // 2: without drafts
  // Truncates the file. Errors: kIo.
  static Result<std::unique_ptr<Recorder>> open(const std::string& path);
  ~Recorder();
  Recorder(const Recorder&) = delete;

  void begin(const sched::SchedulerOptions& options, const std::vector<double>& step_cost);
  // end_tokens: the model's, which end the request unless it ignores them.
  void submission(const sched::Submission& s, const std::vector<int32_t>& end_tokens);
  void cancelled(TimeUs now, const std::vector<uint64_t>& request_ids);
  // What the scheduler was given before the plan that follows.
  void drafts(const std::vector<draft::Given>& given);
  // hash: of the plan that was made; 0 for an empty one.
  void planned(TimeUs now, uint64_t hash);
  void committed(TimeUs now, TimeUs took_us, const sched::StepResult& result);
  void flush();

 private:
  explicit Recorder(std::FILE* file) : file_(file) {}
  void line(const std::string& text);
  std::FILE* file_;
};

}  // namespace sluice::engine
