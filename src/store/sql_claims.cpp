// What a runner asks while jobs go on: claims of jobs and lines, and results.
#include "store/sql_store.h"

namespace sluice::store {

// A common table is read once, so that no more rows are locked than are claimed.
Result<std::optional<Job>> SqlStore::claim_new_job(const std::string& model) {
  const std::string now(sql_->dialect().now), skip(sql_->dialect().skip_locked);
  return transact([&]() -> Result<std::optional<Job>> {
    SLUICE_ASSIGN(const Rows rows, query("WITH picked AS MATERIALIZED (SELECT t.id FROM jobs t WHERE t.state = $3 AND t.model = $4 AND "
                                         "(t.lease_until <= " + now + " OR t.owner = $1) ORDER BY t.seq LIMIT 1" + skip + ") UPDATE jobs SET owner = $1, "
                                         "lease_until = " + now + " + $2 WHERE id IN (SELECT id FROM picked) RETURNING " + kJobColumns,
                                         {owner_, lease_s_, int64_t(JobState::kValidating), model}));
    if (rows.empty()) return std::optional<Job>();
    return std::optional<Job>(job_of(rows[0]));
  });
}

Result<bool> SqlStore::start_job(const std::string& id, const std::vector<Line>& lines, int64_t now_s) {
  return transact([&]() -> Result<bool> {
    SLUICE_ASSIGN(const Rows rows, query("UPDATE jobs SET state = $2, in_progress_s = $3, total = $4, lease_until = 0 WHERE id = $1 "
                                         "AND state = $5 AND owner = $6 RETURNING id",
                                         {id, int64_t(JobState::kInProgress), now_s, int64_t(lines.size()),
                                          int64_t(JobState::kValidating), owner_}));
    if (rows.empty()) return false;
    for (size_t i = 0; i < lines.size(); ++i)
      SLUICE_TRY(query("INSERT INTO lines (job_id, idx, custom_id, url, body) VALUES ($1, $2, $3, $4, $5)",
                       {id, int64_t(i), lines[i].custom_id, lines[i].url, lines[i].body}));
    return true;
  });
}

Result<bool> SqlStore::fail_job(const std::string& id, const std::string& errors, int64_t now_s) {
  return transact([&]() -> Result<bool> {
    SLUICE_ASSIGN(const Rows rows, query("UPDATE jobs SET state = $2, failed_s = $3, errors = $4 WHERE id = $1 AND state = $5 AND "
                                         "owner = $6 RETURNING id",
                                         {id, int64_t(JobState::kFailed), now_s, errors, int64_t(JobState::kValidating), owner_}));
    return !rows.empty();
  });
}

Result<std::vector<Line>> SqlStore::claim_lines(const std::string& model, int64_t limit) {
  const std::string now(sql_->dialect().now), skip(sql_->dialect().skip_locked);
  return transact([&]() -> Result<std::vector<Line>> {
    SLUICE_ASSIGN(const Rows rows, query("WITH picked AS MATERIALIZED (SELECT t.job_id, t.idx FROM lines t JOIN jobs j ON j.id = t.job_id "
                                         "WHERE j.state = $3 AND j.model = $4 AND t.state = 0 AND t.lease_until <= " + now +
                                         " ORDER BY j.seq, t.idx LIMIT $5" + skip + ") UPDATE lines SET owner = $1, lease_until = " + now +
                                         " + $2 WHERE (job_id, idx) IN (SELECT job_id, idx FROM picked) RETURNING job_id, idx, custom_id, url, body",
                                         {owner_, lease_s_, int64_t(JobState::kInProgress), model, limit}));
    std::vector<Line> out;
    for (const Row& row : rows) out.push_back({row[0], to_number(row[1]), row[2], row[3], row[4]});
    return out;
  });
}

// The result, the mark and the job's counts: all or nothing. A line that somebody finished before is left as it is. The job
// is locked first, in the order in which finish_job goes.
Result<bool> SqlStore::finish_line(const Line& line, const LineResult& r) {
  const std::string lock(sql_->dialect().lock);
  return transact([&]() -> Result<bool> {
    SLUICE_TRY(query("SELECT id FROM jobs WHERE id = $1" + lock, {line.job_id}));
    SLUICE_ASSIGN(const Rows rows, query("UPDATE lines SET state = $3, result = $4, lease_until = 0 WHERE job_id = $1 AND idx = $2 AND "
                                         "state = 0 AND owner = $5 RETURNING idx",
                                         {line.job_id, line.index, int64_t(r.ok ? 1 : 2), r.text, owner_}));
    if (rows.empty()) return false;
    SLUICE_TRY(query("UPDATE jobs SET completed = completed + $2, failed = failed + $3, prompt_tokens = prompt_tokens + $4, "
                     "cached_tokens = cached_tokens + $5, completion_tokens = completion_tokens + $6 WHERE id = $1",
                     {line.job_id, int64_t(r.ok), int64_t(!r.ok), r.prompt_tokens, r.cached_tokens, r.completion_tokens}));
    return true;
  });
}

Status SqlStore::release_line(const Line& line) {
  return transact([&]() -> Status {
    SLUICE_TRY(query("UPDATE lines SET lease_until = 0, owner = '' WHERE job_id = $1 AND idx = $2 AND state = 0 AND owner = $3",
                     {line.job_id, line.index, owner_}));
    return {};
  });
}

// Claims that lapsed are renewed too, if nobody took them meanwhile.
Status SqlStore::renew_claims() {
  const std::string until = std::string(sql_->dialect().now) + " + $2";
  return transact([&]() -> Status {
    SLUICE_TRY(query("UPDATE lines SET lease_until = " + until + " WHERE state = 0 AND owner = $1", {owner_, lease_s_}));
    return {};
  });
}

}  // namespace sluice::store
