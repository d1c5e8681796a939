// The end of a job: its results become files, its lines go, all in one transaction.
#include "store/sql_store.h"

namespace sluice::store {
namespace {

constexpr int64_t kPage = 256;   // lines read at a time: results may be long

}  // namespace

Result<std::vector<Job>> SqlStore::ending_jobs(int64_t now_s) {
  return transact([&]() -> Result<std::vector<Job>> {
    SLUICE_TRY(query("UPDATE jobs SET state = $1, finalizing_s = $2 WHERE state = $3 AND completed + failed = total",
                     {int64_t(JobState::kFinalizing), now_s, int64_t(JobState::kInProgress)}));
    SLUICE_ASSIGN(const Rows rows, query(std::string("SELECT ") + kJobColumns + " FROM jobs WHERE state IN ($1, $2) OR (state IN ($3, $4) AND "
                                         "expires_s <= $5) ORDER BY seq LIMIT 64",
                                         {int64_t(JobState::kFinalizing), int64_t(JobState::kCancelling),
                                          int64_t(JobState::kValidating), int64_t(JobState::kInProgress), now_s}));
    std::vector<Job> out;
    for (const Row& row : rows) out.push_back(job_of(row));
    return out;
  });
}

Result<bool> SqlStore::finish_job(const std::string& id, int64_t now_s, const Unfinished& unfinished) {
  const std::string skip(sql_->dialect().skip_locked);
  return transact([&]() -> Result<bool> {
    SLUICE_ASSIGN(const Rows rows, query(std::string("SELECT ") + kJobColumns + " FROM jobs t WHERE id = $1" + skip, {id}));
    if (rows.empty()) return false;   // another server is at it
    Job job = job_of(rows[0]);
    switch (job.state) {
      case JobState::kFinalizing:
        job.state = JobState::kCompleted;
        job.completed_s = now_s;
        break;
      case JobState::kCancelling:
        job.state = JobState::kCancelled;
        job.cancelled_s = now_s;
        break;
      case JobState::kValidating:
      case JobState::kInProgress:
        if (job.expires_s > now_s) return false;
        job.state = JobState::kExpired;
        job.expired_s = now_s;
        break;
      default:
        return false;
    }
    return write_results(job, now_s, unfinished);
  });
}

Result<bool> SqlStore::write_results(Job& job, int64_t now_s, const Unfinished& unfinished) {
  struct Out {
    File file;
    std::string pending;
    int64_t chunks = 0;
  };
  Out outs[2];
  const char* const names[] = {"_output.jsonl", "_errors.jsonl"};
  for (int i = 0; i < 2; ++i)
    outs[i].file = {fresh_id("file-"), job.id + names[i], "batch_output", 0, now_s, job.output_lifetime_s ? now_s + job.output_lifetime_s : 0};
  const auto append = [&](Out& out, std::string_view line) -> Status {
    out.pending.append(line).append("\n");
    out.file.bytes += int64_t(line.size()) + 1;
    size_t at = 0;   // every chunk but the last is of one size
    for (; out.pending.size() - at >= size_t(kChunkBytes); at += size_t(kChunkBytes))
      SLUICE_TRY(insert_chunk(out.file.id, out.chunks++, std::string_view(out.pending).substr(at, size_t(kChunkBytes))));
    out.pending.erase(0, at);
    return {};
  };
  for (int64_t last = -1;;) {
    SLUICE_ASSIGN(const Rows rows, query("SELECT idx, custom_id, url, state, result FROM lines WHERE job_id = $1 AND idx > $2 ORDER BY idx LIMIT $3",
                                         {job.id, last, kPage}));
    for (const Row& row : rows) {
      last = to_number(row[0]);
      const int64_t state = to_number(row[3]);
      SLUICE_TRY(append(outs[state == 1 ? 0 : 1], state == 0 ? unfinished({job.id, last, row[1], row[2], {}}, job.state) : row[4]));
    }
    if (int64_t(rows.size()) < kPage) break;
  }
  for (Out& out : outs) {
    if (out.file.bytes == 0) {
      out.file.id.clear();
      continue;
    }
    if (!out.pending.empty()) SLUICE_TRY(insert_chunk(out.file.id, out.chunks, out.pending));
    SLUICE_TRY(insert_file(out.file));
  }
  SLUICE_TRY(query("UPDATE jobs SET state = $2, completed_s = $3, cancelled_s = $4, expired_s = $5, output_file_id = $6, error_file_id = $7 "
                   "WHERE id = $1", {job.id, int64_t(job.state), job.completed_s, job.cancelled_s, job.expired_s, outs[0].file.id, outs[1].file.id}));
  SLUICE_TRY(query("DELETE FROM lines WHERE job_id = $1", {job.id}));
  return true;
}

}  // namespace sluice::store
