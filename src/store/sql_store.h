// SqlStore: the JobStore over any Sql. sql_files.cpp has what concerns files, sql_jobs.cpp what the API asks of jobs,
// sql_claims.cpp what a runner asks, sql_finish.cpp the end of a job. Internal to store/.
#pragma once
#include <mutex>

#include "store/sql.h"

namespace sluice::store {

class SqlStore final : public JobStore {
 public:
  SqlStore(std::unique_ptr<Sql> sql, Limits limits, int64_t lease_s);
  // Makes the tables, or checks that they are this version's.
  Status prepare();

  Result<File> create_file(File file, std::string_view content) override;
  Result<File> file(const std::string& id) override;
  Result<std::vector<File>> files(const FileQuery& query) override;
  Result<std::string> file_chunk(const std::string& id, int64_t index) override;
  Status delete_file(const std::string& id) override;
  Result<Job> create_job(Job job) override;
  Result<Job> job(const std::string& id) override;
  Result<std::vector<Job>> jobs(const std::string& after, int64_t limit) override;
  Result<Job> cancel_job(const std::string& id, int64_t now_s) override;
  Result<std::optional<Job>> claim_new_job(const std::string& model) override;
  Result<bool> start_job(const std::string& id, const std::vector<Line>& lines, int64_t now_s) override;
  Result<bool> fail_job(const std::string& id, const std::string& errors, int64_t now_s) override;
  Result<std::vector<Line>> claim_lines(const std::string& model, int64_t limit) override;
  Result<bool> finish_line(const Line& line, const LineResult& result) override;
  Status release_line(const Line& line) override;
  Status renew_claims() override;
  int64_t lease_s() const override { return lease_s_; }
  Result<std::vector<Job>> ending_jobs(int64_t now_s) override;
  Result<bool> finish_job(const std::string& id, int64_t now_s, const Unfinished& unfinished) override;
  Status purge(int64_t now_s) override;

 private:
  // Runs f, which returns a Result or Status, as one transaction: what failed leaves nothing behind.
  template <class F>
  auto transact(F&& f) -> decltype(f()) {
    std::lock_guard lock(mutex_);
    if (Status s = sql_->begin(); !s.ok()) return s.error();
    auto out = f();
    if (!out.ok()) {
      sql_->rollback();
      return out;
    }
    if (Status s = sql_->commit(); !s.ok()) {
      sql_->rollback();
      return s.error();
    }
    return out;
  }
  Result<Rows> query(const std::string& text, const std::vector<Param>& params = {}) { return sql_->query(text, params); }
  // The statement's count or sum.
  Result<int64_t> number(const std::string& text, const std::vector<Param>& params = {});
  // The place of a row in the order of creation. Error: kNotFound.
  Result<int64_t> place_of(const char* table, const std::string& id, const char* what);
  Result<File> find_file(const std::string& id);
  Result<Job> find_job(const std::string& id);
  Status insert_file(const File& file);
  Status insert_chunk(const std::string& file_id, int64_t index, std::string_view bytes);
  Result<bool> write_results(Job& job, int64_t now_s, const Unfinished& unfinished);
  Status check_room(int64_t bytes);

  std::mutex mutex_;             // guards sql_
  std::unique_ptr<Sql> sql_;
  Limits limits_;
  int64_t lease_s_;
  std::string owner_;            // this process, in claims
};

int64_t to_number(const std::string& text);
// Whether a caller's text may be an id or a purpose at all: what is not would only upset the database.
bool is_plain(std::string_view text);
// prefix and 24 random hexadecimal digits.
std::string fresh_id(const char* prefix);

extern const char* const kFileColumns;
File file_of(const Row& row);
extern const char* const kJobColumns;
Job job_of(const Row& row);

}  // namespace sluice::store
