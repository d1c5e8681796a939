#include "lab/replay.h"

#include <fstream>
#include <optional>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "engine/recorder.h"
#include "sched/scheduler.h"

namespace sluice::lab {
namespace {

using Json = nlohmann::json;

class NullSink final : public sched::ResponseSink {
 public:
  void push(sched::TokenEvent&&) noexcept override {}
};

class Replay {
 public:
  explicit Replay(std::shared_ptr<const text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // Throws Json's exceptions where a field is missing or of the wrong kind; std::runtime_error where it is out of range.
  void line(const Json& j) {
    if (j.contains("recording")) begin(j);
    else if (!scheduler_) throw std::runtime_error("the first line is no recording's");
    else if (j.contains("submit")) submit(j.at("submit"));
    else if (j.contains("cancel")) cancel(j.at("cancel"));
    else if (j.contains("drafts")) drafts(j.at("drafts"));
    else if (j.contains("plan")) plan(j.at("plan"));
    else if (j.contains("commit")) commit(j.at("commit"));
    else throw std::runtime_error("none of submit, cancel, drafts, plan, commit");
  }
  ReplayReport report;

 private:
  static void require(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
  }

  void begin(const Json& j) {
    const int version = j.at("recording").get<int>();
    require(!scheduler_ && version >= 2 && version <= engine::Recorder::kVersion, "another version's recording, or two in one file");
    const Json& o = j.at("options");
    sched::SchedulerOptions s;
    s.total_blocks = o.at("total_blocks").get<int>();
    s.block_tokens = o.at("block_tokens").get<int>();
    s.group_tokens = o.value("group_tokens", 1);
    s.max_sequences = o.at("max_sequences").get<int>();
    s.max_step_tokens = o.at("max_step_tokens").get<int>();
    s.tile_tokens = std::max(1, o.value("tile_tokens", 1));  // older recordings have neither
    s.prompt_us = o.value("prompt_us", TimeUs{0});
    s.step_us = o.at("step_us").get<TimeUs>();
    s.prompt_room = o.at("prompt_room").get<double>();
    s.batch_room = o.at("batch_room").get<double>();
    s.max_context = o.at("max_context").get<int>();
    s.vocab = o.at("vocab").get<int>();
    s.swap_blocks = o.at("swap_blocks").get<int>();
    s.swap_block_us = o.at("swap_block_us").get<double>();
    s.prefix_cache = o.at("prefix_cache").get<bool>();
    require(s.swap_blocks >= 0 && s.swap_blocks <= 1 << 26 && s.swap_block_us >= 0, "options are out of range");
    require(s.total_blocks > 0 && s.total_blocks <= 1 << 26 && s.block_tokens >= 16 && s.block_tokens <= 256 && s.block_tokens % 16 == 0 && (s.group_tokens == 1 || s.group_tokens == 16) && s.max_sequences > 0 &&
                s.max_sequences <= 1 << 16 && s.max_step_tokens >= s.max_sequences && s.max_step_tokens <= 1 << 24, "options are out of range");
    scheduler_.emplace(s, tokenizer_);
    if (const auto cost = j.at("step_cost").get<std::vector<double>>(); !cost.empty()) require(scheduler_->cost().restore(cost), "step_cost is no cost model's state");
  }

  void submit(const Json& j) {
    sched::Submission s;
    s.id = j.at("id").get<uint64_t>();
    s.arrived_us = j.at("arrived_us").get<TimeUs>();
    s.prompt = j.at("prompt").get<std::vector<int32_t>>();
    s.max_tokens = j.at("max_tokens").get<int>();
    s.min_tokens = j.at("min_tokens").get<int>();
    s.n = j.at("n").get<int>();
    s.stop_token_ids = j.at("stop_tokens").get<std::vector<int32_t>>();
    s.ignore_eos = true;  // the model's own are among them
    s.request_class = j.at("batch").get<bool>() ? sched::RequestClass::kBatch : sched::RequestClass::kInteractive;
    s.cache_salt = j.at("cache_salt").get<uint64_t>();
    s.share_key = j.at("share_key").get<uint64_t>();
    s.share_weight = j.at("share_weight").get<double>();
    s.ttft_target_us = j.at("ttft_target_us").get<TimeUs>();
    s.tpot_target_us = j.at("tpot_target_us").get<TimeUs>();
    s.prompt_logprobs = j.at("prompt_logprobs").get<int>();
    const auto penalties = j.at("penalties").get<std::array<float, 3>>();
    s.sampling.repetition_penalty = penalties[0];
    s.sampling.presence_penalty = penalties[1];
    s.sampling.frequency_penalty = penalties[2];
    if (j.contains("stop")) s.stop = j.at("stop").get<std::vector<std::string>>();
    s.include_stop = j.value("include_stop", false);
    s.keep_special = j.value("keep_special", false);
    require(s.stop.empty() || tokenizer_, "a request has stop strings: name the model, whose tokens say where they end");
    require(s.share_weight > 0 && s.ttft_target_us >= 0 && s.tpot_target_us >= 0, "a request's weight or targets are out of range");
    require(!s.prompt.empty() && s.n >= 1 && s.n <= 256 && s.max_tokens >= 0 &&
                sched::Scheduler::fits(scheduler_->options(), int64_t(s.prompt.size()), s.max_tokens).ok(), "a request is out of range");
    s.sink = std::make_shared<NullSink>();
    s.cancelled = std::make_shared<std::atomic<bool>>(false);
    cancels_[s.id] = s.cancelled;
    scheduler_->admit(std::move(s));
  }

  void cancel(const Json& j) {
    for (const uint64_t id : j.at("ids").get<std::vector<uint64_t>>())
      if (const auto it = cancels_.find(id); it != cancels_.end()) it->second->store(true);
    sched::StepOutcome outcome;
    scheduler_->reap_cancelled(j.at("now").get<TimeUs>(), outcome);
  }

  void drafts(const Json& list) {
    const size_t slots = scheduler_->draft_slots().size();
    proposed_ = true;
    for (const Json& j : list) {
      const auto slot = j.at(0).get<size_t>();
      if (slot >= slots) throw Diverged{};
      scheduler_->put_drafts(slot, j.at(2).get<std::vector<int32_t>>(), j.at(1).get<bool>());
    }
  }

  void plan(const Json& j) {
    require(scheduler_->num_in_flight() < sched::Scheduler::kMaxFlights, "a plan where two are in flight");
    if (!proposed_) scheduler_->draft_slots();  // nothing was proposed: drafts that the last plan had no room for are dropped
    proposed_ = false;
    const sched::BatchPlan& plan = scheduler_->plan(j.at("now").get<TimeUs>());
    ++report.steps;
    if ((plan.empty() ? 0 : plan.hash()) == j.at("hash").get<uint64_t>()) {
      ++report.equal;
    } else if (report.first_unequal == 0) {
      report.first_unequal = report.steps;
      report.difference = std::to_string(plan.num_tokens()) + " tokens of " + std::to_string(plan.num_sequences()) + " sequences in " +
                          std::to_string(plan.block_ids.size()) + " blocks, " + std::to_string(plan.rows.size()) + " rows";
    }
    rows_.push_back(plan.rows.size());
    if (plan.empty()) rows_.pop_back();
  }

  void commit(const Json& j) {
    const auto tokens = j.at("tokens").get<std::vector<int32_t>>();
    if (rows_.empty() || rows_.front() != tokens.size()) throw Diverged{};
    rows_.erase(rows_.begin());
    sched::StepResult result;
    for (int32_t t : tokens) {
      sample::SampledToken token;
      token.token = t;
      result.rows.push_back(token);
    }
    sched::StepOutcome outcome;
    scheduler_->commit(result, j.at("now").get<TimeUs>(), j.at("took_us").get<TimeUs>(), outcome);
  }

 public:
  struct Diverged {};  // the schedule has become another: what follows cannot be compared

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::optional<sched::Scheduler> scheduler_;
  std::unordered_map<uint64_t, std::shared_ptr<std::atomic<bool>>> cancels_;
  std::vector<size_t> rows_;  // of the plans in flight
  bool proposed_ = false;     // for the plan that comes
};

}  // namespace

Result<ReplayReport> replay(const std::string& path, std::shared_ptr<const text::Tokenizer> tokenizer) {
  std::ifstream in(path);
  if (!in) return Error{ErrorCode::kNotFound, path + ": cannot be read", "trace"};
  Replay run(std::move(tokenizer));
  int number = 0;
  try {
    for (std::string text; std::getline(in, text);) {
      ++number;
      const Json j = Json::parse(text, nullptr, false);
      if (j.is_discarded() && in.peek() == EOF) break;  // the last line was cut off
      run.line(j);
    }
  } catch (const Replay::Diverged&) {
    return run.report;
  } catch (const std::exception& e) {
    return bad_file(path + ": line " + std::to_string(number) + ": " + e.what());
  }
  if (number == 0) return bad_file(path + ": is empty");
  return run.report;
}

}  // namespace sluice::lab
