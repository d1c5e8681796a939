#include "api/batch_runner.h"

#include <algorithm>
#include <cstdio>

#include "api/batch_input.h"
#include "api/job_format.h"

namespace sluice::api {
namespace {

using namespace std::chrono_literals;
constexpr auto kRefusedPause = 1s;      // after the engine's queue was full
constexpr auto kPurgeEvery = 60s;

std::string unfinished_line(const store::Line& line, store::JobState end) {
  const bool expired = end == store::JobState::kExpired;
  Json error;
  error["code"] = expired ? "batch_expired" : "batch_cancelled";
  error["message"] = expired ? "the batch's completion window was over before this request was run"
                             : "the batch was cancelled before this request was run";
  return result_line(line.custom_id, {}, dump(error));
}

}  // namespace

BatchRunner::BatchRunner(std::shared_ptr<Context> context, store::JobStore* store, BatchOptions options)
    : context_(context), store_(store), options_(options), lines_(std::move(context), options.concurrency) {
  thread_ = std::thread([this] { run(); });
}

BatchRunner::~BatchRunner() {
  stop_ = true;
  lines_.notify();
  thread_.join();
}

void BatchRunner::notify() {
  notified_ = true;
  lines_.notify();
}

bool BatchRunner::report(const Status& status) {
  const std::string error = status.ok() ? "" : status.error().message;
  if (error != last_error_) std::fprintf(stderr, "batches: %s\n", error.empty() ? "the store answers again" : error.c_str());
  last_error_ = error;
  return status.ok();
}

void BatchRunner::run() {
  const std::chrono::microseconds poll(options_.poll_us);
  while (!stop_ && !context_->draining) {   // nobody waits for a batch: a server that drains gives its lines back
    take(lines_.wait(poll));
    record();
    const Time now = std::chrono::steady_clock::now();
    if (now >= next_look_ || notified_.exchange(false)) {
      look_around();
      next_look_ = now + poll;
    }
    if (!stop_ && unrecorded_.empty() && lines_.room() > 0 && now >= next_claim_) claim();
  }
  take(lines_.wait(0us));
  record();
  for (const store::Line& line : lines_.drop([](const store::Line&) { return true; }))
    if (!report(store_->release_line(line))) break;   // the claim lapses by itself
}

void BatchRunner::look_around() {
  const Time now = std::chrono::steady_clock::now();
  if (now >= next_renewal_) {
    if (!report(store_->renew_claims())) return;
    next_renewal_ = now + std::chrono::seconds(std::clamp<int64_t>(store_->lease_s() / 3, 1, 3600));
  }
  if (now >= next_purge_) {
    if (!report(store_->purge(unix_seconds()))) return;
    next_purge_ = now + kPurgeEvery;
  }
  validate_new();
  drop_ended();
  end_jobs();
}

void BatchRunner::validate_new() {
  while (!stop_) {
    auto job = store_->claim_new_job(context_->model.id);
    if (!report(job.ok() ? Status() : Status(job.error())) || !*job) return;
    if (!report(validate(**job))) return;   // the job is given to us again
    next_claim_ = {};
  }
}

Status BatchRunner::validate(const store::Job& job) {
  BatchInput input(job.endpoint, context_->model);
  Status status;
  for (int64_t i = 0;; ++i) {
    const auto chunk = store_->file_chunk(job.input_file_id, i);
    if (!chunk.ok()) {
      status = chunk.error();
      break;
    }
    if (chunk->empty()) break;
    input.add(*chunk);
  }
  if (!status.ok() && status.error().code != ErrorCode::kNotFound) return status;
  input.end();
  auto problems = input.problems();
  if (!status.ok()) problems = {{"input_file_not_found", status.error().message, "input_file_id", 0}};
  const auto changed = problems.empty() ? store_->start_job(job.id, input.lines(), unix_seconds())
                                        : store_->fail_job(job.id, dump(problems_json(problems)), unix_seconds());
  return changed.ok() ? Status() : Status(changed.error());
}

// Lines of jobs that were cancelled, expired or ended elsewhere are of no use any more.
void BatchRunner::drop_ended() {
  for (const std::string& id : lines_.jobs()) {
    const auto job = store_->job(id);
    if (!job.ok() && job.error().code != ErrorCode::kNotFound) {
      report(job.error());
      return;
    }
    if (job.ok() && job->state == store::JobState::kInProgress && job->expires_s > unix_seconds()) continue;
    lines_.drop([&](const store::Line& line) { return line.job_id == id; });
  }
}

void BatchRunner::end_jobs() {
  const auto jobs = store_->ending_jobs(unix_seconds());
  if (!report(jobs.ok() ? Status() : Status(jobs.error()))) return;
  for (const store::Job& job : *jobs) {
    const auto ended = store_->finish_job(job.id, unix_seconds(), unfinished_line);
    if (!report(ended.ok() ? Status() : Status(ended.error()))) return;
  }
}

void BatchRunner::claim() {
  auto claimed = store_->claim_lines(context_->model.id, lines_.room());
  const auto wait_for_news = [&] { next_claim_ = std::chrono::steady_clock::now() + std::chrono::microseconds(options_.poll_us); };
  if (!report(claimed.ok() ? Status() : Status(claimed.error())) || claimed->empty()) return wait_for_news();
  for (store::Line& line : *claimed) lines_.start(std::move(line));
}

void BatchRunner::take(std::vector<LineDone>&& done) {
  for (LineDone& d : done) unrecorded_.push_back(std::move(d));
}

void BatchRunner::record() {
  size_t recorded = 0;
  for (const LineDone& d : unrecorded_) {
    Status status;
    if (d.refused) {
      status = store_->release_line(d.line);
      next_claim_ = std::chrono::steady_clock::now() + kRefusedPause;
    } else if (const auto mine = store_->finish_line(d.line, d.result); !mine.ok()) {
      status = mine.error();
    }
    if (!report(status)) break;
    ++recorded;
  }
  unrecorded_.erase(unrecorded_.begin(), unrecorded_.begin() + std::ptrdiff_t(recorded));
  if (recorded > 0 && lines_.idle()) notified_ = true;   // that may have been a job's last line
}

}  // namespace sluice::api
