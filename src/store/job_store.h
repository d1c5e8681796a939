// JobStore: uploaded files and batch jobs that survive the process. One transaction a change of state; a line's result and
// the mark that it is done are one. Every method may be called from any thread, and may block on the disk or the network.
// Times are Unix seconds, 0 for "not yet" or "never"; sizes are bytes. Errors: kNotFound naming the id, kInvalidArgument and
// kTooLarge naming field and limit, kIo when the database cannot be reached or used.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::store {

struct Limits {
  int64_t file_bytes = 200'000'000;             // one uploaded file
  int64_t files = 10'000;                       // uploaded files kept at once
  int64_t all_bytes = int64_t{20} << 30;        // of all files together; checked before one is uploaded
  int64_t open_jobs = 1'000;                    // jobs that have not ended
};

struct File {
  std::string id;                               // "file-..."
  std::string filename, purpose;
  int64_t bytes = 0, created_s = 0, expires_s = 0;
};

struct FileQuery {
  std::string purpose;                          // empty: any
  std::string after;                            // id of the last file of the page before
  int64_t limit = 10'000;
  bool ascending = false;                       // by time of creation
};

enum class JobState { kValidating, kFailed, kInProgress, kFinalizing, kCompleted, kExpired, kCancelling, kCancelled };
const char* state_name(JobState state);         // as the API writes it

struct Job {
  std::string id;                               // "batch_..."
  std::string model;                            // whose servers run it
  std::string endpoint, completion_window;
  std::string input_file_id, output_file_id, error_file_id;  // the latter two empty while there is no such file
  std::string metadata, errors;                 // JSON, or empty
  JobState state = JobState::kValidating;
  int64_t created_s = 0, in_progress_s = 0, expires_s = 0, finalizing_s = 0, completed_s = 0, failed_s = 0, expired_s = 0,
          cancelling_s = 0, cancelled_s = 0;
  int64_t output_lifetime_s = 0;                // of the result files, from the job's end
  int64_t total = 0, completed = 0, failed = 0; // lines
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

// One request of a job. (job_id, index) names it.
struct Line {
  std::string job_id;
  int64_t index = 0;
  std::string custom_id, url, body;             // body: JSON
};

struct LineResult {
  bool ok = false;                              // goes to the output file; else to the error file
  std::string text;                             // the JSON of the result, without a newline
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

class JobStore {
 public:
  virtual ~JobStore() = default;

  // Files. id of `file` is given by the store; bytes is content's.
  virtual Result<File> create_file(File file, std::string_view content) = 0;
  virtual Result<File> file(const std::string& id) = 0;
  virtual Result<std::vector<File>> files(const FileQuery& query) = 0;
  // The index-th piece of kChunkBytes (the last is shorter); empty behind the end.
  virtual Result<std::string> file_chunk(const std::string& id, int64_t index) = 0;
  virtual Status delete_file(const std::string& id) = 0;

  // Jobs. id and state of `job` are given by the store. The input file must be there.
  virtual Result<Job> create_job(Job job) = 0;
  virtual Result<Job> job(const std::string& id) = 0;
  virtual Result<std::vector<Job>> jobs(const std::string& after, int64_t limit) = 0;   // newest first
  virtual Result<Job> cancel_job(const std::string& id, int64_t now_s) = 0;

  // What a runner asks. A claim is a lease: it is this process's until it ends, is released, or has not been renewed for
  // lease_s seconds, and nobody else is given what is claimed. Calls that return bool: false when it was not this process's
  // to change any more (the line was taken over, the job has ended), and nothing was changed.
  // The oldest job to be checked; again the same one when it was claimed before and has come no further.
  virtual Result<std::optional<Job>> claim_new_job(const std::string& model) = 0;
  virtual Result<bool> start_job(const std::string& id, const std::vector<Line>& lines, int64_t now_s) = 0;
  virtual Result<bool> fail_job(const std::string& id, const std::string& errors, int64_t now_s) = 0;
  virtual Result<std::vector<Line>> claim_lines(const std::string& model, int64_t limit) = 0;
  virtual Result<bool> finish_line(const Line& line, const LineResult& result) = 0;
  virtual Status release_line(const Line& line) = 0;
  virtual Status renew_claims() = 0;
  virtual int64_t lease_s() const = 0;
  // Jobs that wait for finish_job: every line is done, or it was cancelled, or its time is over.
  virtual Result<std::vector<Job>> ending_jobs(int64_t now_s) = 0;
  // Writes the result files and ends the job. unfinished: the error line of a request that was not run.
  using Unfinished = std::function<std::string(const Line& line, JobState end)>;
  virtual Result<bool> finish_job(const std::string& id, int64_t now_s, const Unfinished& unfinished) = 0;
  // Forgets files whose time is over, and jobs that ended and whose time was over kEndedJobsKept before.
  virtual Status purge(int64_t now_s) = 0;
};

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kEndedJobsKept = 30 * 86'400;

// "postgresql://..." (or "postgres://..."): a database that several servers may share. Anything else: the path of a SQLite
// file, made when absent, which one process has to itself. lease_s: how long a server that died keeps its claims (SQLite has
// no use for it: who opens the file is alone).
Result<std::unique_ptr<JobStore>> open_store(const std::string& location, Limits limits = {}, int64_t lease_s = 30);

}  // namespace sluice::store
