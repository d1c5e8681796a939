#include "store/sql_store.h"

#include <charconv>
#include <random>

namespace sluice::store {
namespace {

constexpr int64_t kSchemaVersion = 1;

// Jobs point at files by id without a foreign key: a file may be deleted while the job that read it goes on.
std::vector<std::string> schema(const Dialect& d) {
  const std::string serial(d.serial), bytes(d.bytes);
  return {
      "CREATE TABLE files (seq " + serial + ", id TEXT NOT NULL UNIQUE, filename TEXT NOT NULL, purpose TEXT NOT NULL, "
      "bytes BIGINT NOT NULL, created_s BIGINT NOT NULL, expires_s BIGINT NOT NULL)",
      "CREATE TABLE file_chunks (file_id TEXT NOT NULL, idx BIGINT NOT NULL, content " + bytes + " NOT NULL, "
      "PRIMARY KEY (file_id, idx))",
      "CREATE TABLE jobs (seq " + serial + ", id TEXT NOT NULL UNIQUE, model TEXT NOT NULL, endpoint TEXT NOT NULL, "
      "completion_window TEXT NOT NULL, input_file_id TEXT NOT NULL, output_file_id TEXT NOT NULL DEFAULT '', "
      "error_file_id TEXT NOT NULL DEFAULT '', metadata TEXT NOT NULL DEFAULT '', errors TEXT NOT NULL DEFAULT '', "
      "state BIGINT NOT NULL, created_s BIGINT NOT NULL, in_progress_s BIGINT NOT NULL DEFAULT 0, expires_s BIGINT NOT NULL, "
      "finalizing_s BIGINT NOT NULL DEFAULT 0, completed_s BIGINT NOT NULL DEFAULT 0, failed_s BIGINT NOT NULL DEFAULT 0, "
      "expired_s BIGINT NOT NULL DEFAULT 0, cancelling_s BIGINT NOT NULL DEFAULT 0, cancelled_s BIGINT NOT NULL DEFAULT 0, "
      "output_lifetime_s BIGINT NOT NULL, total BIGINT NOT NULL DEFAULT 0, completed BIGINT NOT NULL DEFAULT 0, "
      "failed BIGINT NOT NULL DEFAULT 0, prompt_tokens BIGINT NOT NULL DEFAULT 0, cached_tokens BIGINT NOT NULL DEFAULT 0, "
      "completion_tokens BIGINT NOT NULL DEFAULT 0, owner TEXT NOT NULL DEFAULT '', lease_until BIGINT NOT NULL DEFAULT 0)",
      "CREATE INDEX jobs_by_state ON jobs (state)",
      // state: 0 to be run, 1 done, 2 done and failed
      "CREATE TABLE lines (job_id TEXT NOT NULL, idx BIGINT NOT NULL, custom_id TEXT NOT NULL, url TEXT NOT NULL, "
      "body TEXT NOT NULL, state BIGINT NOT NULL DEFAULT 0, result TEXT NOT NULL DEFAULT '', owner TEXT NOT NULL DEFAULT '', "
      "lease_until BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (job_id, idx))",
      "CREATE INDEX lines_by_state ON lines (job_id, state, idx)",
  };
}

}  // namespace

const char* state_name(JobState state) {
  switch (state) {
    case JobState::kValidating: return "validating";
    case JobState::kFailed: return "failed";
    case JobState::kInProgress: return "in_progress";
    case JobState::kFinalizing: return "finalizing";
    case JobState::kCompleted: return "completed";
    case JobState::kExpired: return "expired";
    case JobState::kCancelling: return "cancelling";
    case JobState::kCancelled: return "cancelled";
  }
  return "failed";
}

int64_t to_number(const std::string& text) {
  int64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

bool is_plain(std::string_view text) {
  for (const char c : text)
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_')) return false;
  return text.size() <= 128;
}

std::string fresh_id(const char* prefix) {
  thread_local std::mt19937_64 rng{std::random_device{}() ^ (uint64_t{std::random_device{}()} << 32)};
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = prefix;
  for (int i = 0; i < 24; ++i) out += kHex[rng() >> 60];
  return out;
}

SqlStore::SqlStore(std::unique_ptr<Sql> sql, Limits limits, int64_t lease_s)
    : sql_(std::move(sql)), limits_(limits), lease_s_(lease_s), owner_(fresh_id("server-")) {}

Status SqlStore::prepare() {
  return transact([&]() -> Status {
    if (!sql_->dialect().schema_lock.empty()) SLUICE_TRY(query(std::string(sql_->dialect().schema_lock)));
    // The other tables are touched by the first alone: servers that start must not wait for those that work, nor they for them.
    SLUICE_TRY(query("CREATE TABLE IF NOT EXISTS sluice_schema (version BIGINT NOT NULL)"));
    SLUICE_ASSIGN(const Rows version, query("SELECT version FROM sluice_schema"));
    if (version.empty()) {
      for (const std::string& statement : schema(sql_->dialect())) SLUICE_TRY(query(statement));
      SLUICE_TRY(query("INSERT INTO sluice_schema (version) VALUES ($1)", {kSchemaVersion}));
      return {};
    }
    if (to_number(version[0][0]) != kSchemaVersion)
      return Error{ErrorCode::kBadFile, "the store is of version " + version[0][0] + "; this build reads version " +
                       std::to_string(kSchemaVersion), "--store"};
    if (!sql_->dialect().exclusive) return {};
    SLUICE_TRY(query("UPDATE lines SET lease_until = 0 WHERE state = 0 AND lease_until <> 0"));
    SLUICE_TRY(query("UPDATE jobs SET lease_until = 0 WHERE lease_until <> 0"));
    return {};
  });
}

Result<int64_t> SqlStore::number(const std::string& text, const std::vector<Param>& params) {
  SLUICE_ASSIGN(const Rows rows, query(text, params));
  return rows.empty() ? 0 : to_number(rows[0][0]);
}

Result<int64_t> SqlStore::place_of(const char* table, const std::string& id, const char* what) {
  Rows rows;
  if (is_plain(id)) {
    SLUICE_ASSIGN(rows, query(std::string("SELECT seq FROM ") + table + " WHERE id = $1", {id}));
  }
  if (rows.empty()) return Error{ErrorCode::kNotFound, std::string("no such ") + what + ": " + id.substr(0, 80), "after"};
  return to_number(rows[0][0]);
}

Result<std::unique_ptr<JobStore>> open_store(const std::string& location, Limits limits, int64_t lease_s) {
  const bool shared = location.starts_with("postgresql://") || location.starts_with("postgres://");
  // A file has one user, whose claims end with it: nothing is gained by letting them lapse.
  if (!shared) lease_s = int64_t{1} << 40;
  SLUICE_ASSIGN(std::unique_ptr<Sql> sql, shared ? open_postgres(location) : open_sqlite(location));
  auto out = std::make_unique<SqlStore>(std::move(sql), limits, lease_s);
  SLUICE_TRY(out->prepare());
  return std::unique_ptr<JobStore>(std::move(out));
}

}  // namespace sluice::store
