// SQLite as the store's database: WAL, one connection, the file locked for as long as it is open.
#include <sqlite3.h>

#include <filesystem>
#include <map>

#include "store/sql.h"

namespace sluice::store {
namespace {

constexpr int kBusyMs = 200;   // a process that ends just now lets go of the file

constexpr Dialect kDialect{.serial = "INTEGER PRIMARY KEY AUTOINCREMENT", .bytes = "BLOB",
                           .now = "CAST(strftime('%s', 'now') AS INTEGER)", .skip_locked = "", .lock = "", .schema_lock = "",
                           .exclusive = true};

class Sqlite final : public Sql {
 public:
  explicit Sqlite(std::string path) : path_(std::move(path)) {}
  ~Sqlite() override {
    for (auto& [_, statement] : statements_) sqlite3_finalize(statement);
    sqlite3_close(db_);
  }

  Status open() {
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path_.c_str(), &db_, flags, nullptr) != SQLITE_OK) return error();
    sqlite3_busy_timeout(db_, kBusyMs);
    for (const char* pragma : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"})
      SLUICE_TRY(run(pragma));
    // The lock is taken by the first write: find out now whether somebody else has it.
    SLUICE_TRY(run("BEGIN IMMEDIATE"));
    return run("COMMIT");
  }

  const Dialect& dialect() const override { return kDialect; }
  Status begin() override { return run("BEGIN IMMEDIATE"); }
  Status commit() override { return run("COMMIT"); }
  void rollback() noexcept override { sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr); }

  Result<Rows> query(const std::string& text, const std::vector<Param>& params) override {
    SLUICE_ASSIGN(sqlite3_stmt * statement, prepared(text));
    for (size_t i = 0; i < params.size(); ++i) bind(statement, "$" + std::to_string(i + 1), params[i]);
    Rows rows;
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) rows.push_back(row_of(statement));
    Status status;
    if (code != SQLITE_DONE) status = error();   // before the reset, which forgets the message
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    if (!status.ok()) return status.error();
    return rows;
  }

 private:
  Error error() const {
    const int code = db_ ? sqlite3_errcode(db_) : SQLITE_NOMEM;
    if ((code & 0xff) == SQLITE_BUSY)
      return {ErrorCode::kIo, path_ + ": another process has the store open; give each server a file of its own, or a postgresql:// URL to share", "--store"};
    return {ErrorCode::kIo, path_ + ": " + (db_ ? sqlite3_errmsg(db_) : "out of memory"), "--store"};
  }
  Status run(const char* text) {
    return sqlite3_exec(db_, text, nullptr, nullptr, nullptr) == SQLITE_OK ? Status() : Status(error());
  }
  Result<sqlite3_stmt*> prepared(const std::string& text) {
    if (const auto it = statements_.find(text); it != statements_.end()) return it->second;
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db_, text.c_str(), int(text.size()), &statement, nullptr) != SQLITE_OK) return error();
    statements_.emplace(text, statement);
    return statement;
  }
  // What is bound lives until the statement has run, so nothing is copied. A name that does not occur is passed over.
  static void bind(sqlite3_stmt* s, const std::string& name, const Param& param) {
    const int at = sqlite3_bind_parameter_index(s, name.c_str());
    if (const auto* number = std::get_if<int64_t>(&param)) sqlite3_bind_int64(s, at, *number);
    else if (const auto* text = std::get_if<std::string_view>(&param))
      sqlite3_bind_text64(s, at, text->data() ? text->data() : "", text->size(), SQLITE_STATIC, SQLITE_UTF8);
    else {
      const std::string_view bytes = std::get<Bytes>(param).bytes;
      sqlite3_bind_blob64(s, at, bytes.data() ? bytes.data() : "", bytes.size(), SQLITE_STATIC);
    }
  }
  static Row row_of(sqlite3_stmt* s) {
    Row row(size_t(sqlite3_column_count(s)));
    for (int i = 0; i < int(row.size()); ++i)  // a blob gives its bytes, a number its decimal text
      if (const void* data = sqlite3_column_blob(s, i)) row[size_t(i)].assign(static_cast<const char*>(data), size_t(sqlite3_column_bytes(s, i)));
    return row;
  }

  std::string path_;
  sqlite3* db_ = nullptr;
  std::map<std::string, sqlite3_stmt*> statements_;   // the store has a fixed set of texts
};

}  // namespace

Result<std::unique_ptr<Sql>> open_sqlite(const std::string& path) {
  std::error_code ec;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) std::filesystem::create_directories(folder, ec);
  if (ec) return Error{ErrorCode::kIo, path + ": its folder cannot be made: " + ec.message(), "--store"};
  auto out = std::make_unique<Sqlite>(path);
  SLUICE_TRY(out->open());
  return std::unique_ptr<Sql>(std::move(out));
}

}  // namespace sluice::store
