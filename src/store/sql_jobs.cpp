// Jobs as the API sees them.
#include "store/sql_store.h"

namespace sluice::store {

const char* const kJobColumns =
    "id, model, endpoint, completion_window, input_file_id, output_file_id, error_file_id, metadata, errors, state, created_s, "
    "in_progress_s, expires_s, finalizing_s, completed_s, failed_s, expired_s, cancelling_s, cancelled_s, output_lifetime_s, total, "
    "completed, failed, prompt_tokens, cached_tokens, completion_tokens";

Job job_of(const Row& row) {
  Job j;
  std::string* const texts[] = {&j.id, &j.model, &j.endpoint, &j.completion_window, &j.input_file_id, &j.output_file_id,
                                &j.error_file_id, &j.metadata, &j.errors};
  int64_t* const numbers[] = {&j.created_s, &j.in_progress_s, &j.expires_s, &j.finalizing_s, &j.completed_s, &j.failed_s,
                              &j.expired_s, &j.cancelling_s, &j.cancelled_s, &j.output_lifetime_s, &j.total, &j.completed,
                              &j.failed, &j.prompt_tokens, &j.cached_tokens, &j.completion_tokens};
  size_t at = 0;
  for (std::string* text : texts) *text = row[at++];
  j.state = JobState(to_number(row[at++]));
  for (int64_t* number : numbers) *number = to_number(row[at++]);
  return j;
}

Result<Job> SqlStore::find_job(const std::string& id) {
  Rows rows;
  if (is_plain(id)) {
    SLUICE_ASSIGN(rows, query(std::string("SELECT ") + kJobColumns + " FROM jobs WHERE id = $1", {id}));
  }
  if (rows.empty()) return Error{ErrorCode::kNotFound, "no such batch: " + id.substr(0, 80), "batch_id"};
  return job_of(rows[0]);
}

Result<Job> SqlStore::create_job(Job job) {
  job.id = fresh_id("batch_");
  job.state = JobState::kValidating;
  return transact([&]() -> Result<Job> {
    if (auto input = find_file(job.input_file_id); !input.ok()) {
      Error error = input.error();
      error.field = "input_file_id";
      return error;
    }
    SLUICE_ASSIGN(const int64_t open, number("SELECT count(*) FROM jobs WHERE state IN ($1, $2, $3, $4)",
                                             {int64_t(JobState::kValidating), int64_t(JobState::kInProgress),
                                              int64_t(JobState::kFinalizing), int64_t(JobState::kCancelling)}));
    if (open >= limits_.open_jobs)
      return Error{ErrorCode::kOverloaded, std::to_string(open) + " batches are open, which is the limit: wait for some to end", {}};
    SLUICE_TRY(query("INSERT INTO jobs (id, model, endpoint, completion_window, input_file_id, metadata, state, created_s, expires_s, "
                     "output_lifetime_s) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
                     {job.id, job.model, job.endpoint, job.completion_window, job.input_file_id, job.metadata, int64_t(job.state),
                      job.created_s, job.expires_s, job.output_lifetime_s}));
    return job;
  });
}

Result<Job> SqlStore::job(const std::string& id) {
  return transact([&] { return find_job(id); });
}

Result<std::vector<Job>> SqlStore::jobs(const std::string& after, int64_t limit) {
  return transact([&]() -> Result<std::vector<Job>> {
    int64_t from = INT64_MAX;
    if (!after.empty()) {
      SLUICE_ASSIGN(from, place_of("jobs", after, "batch"));
    }
    SLUICE_ASSIGN(const Rows rows, query(std::string("SELECT ") + kJobColumns + " FROM jobs WHERE seq < $1 ORDER BY seq DESC LIMIT $2", {from, limit}));
    std::vector<Job> out;
    for (const Row& row : rows) out.push_back(job_of(row));
    return out;
  });
}

Result<Job> SqlStore::cancel_job(const std::string& id, int64_t now_s) {
  return transact([&]() -> Result<Job> {
    SLUICE_TRY(find_job(id));
    SLUICE_TRY(query("UPDATE jobs SET state = $2, cancelling_s = $3 WHERE id = $1 AND state IN ($4, $5)",
                     {id, int64_t(JobState::kCancelling), now_s, int64_t(JobState::kValidating), int64_t(JobState::kInProgress)}));
    SLUICE_ASSIGN(Job job, find_job(id));
    if (job.state != JobState::kCancelling && job.state != JobState::kCancelled)
      return invalid(std::string("a batch that is ") + state_name(job.state) + " cannot be cancelled", "batch_id");
    return job;
  });
}

}  // namespace sluice::store
