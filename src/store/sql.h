// Sql: what the store asks of a database: statements with parameters inside a transaction, and the few words in which
// databases differ. Internal to store/. One Sql belongs to one thread at a time. Errors: kIo with the database's message.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "store/job_store.h"

namespace sluice::store {

struct Bytes {
  explicit Bytes(std::string_view b) : bytes(b) {}
  std::string_view bytes;
};
using Param = std::variant<int64_t, std::string_view, Bytes>;   // what a string_view sees must outlive the call
using Row = std::vector<std::string>;                           // integers in decimal
using Rows = std::vector<Row>;

struct Dialect {
  std::string_view serial;       // type of a column that counts up
  std::string_view bytes;        // type of a column of bytes
  std::string_view now;          // Unix seconds by the database's clock, which all servers share
  std::string_view skip_locked;  // ends a SELECT that claims rows of table t, passing over those that others are claiming
  std::string_view lock;         // ends a SELECT that keeps its rows from changing until the transaction ends
  std::string_view schema_lock;  // a statement that lets one process at a time make tables; empty: none needed
  bool exclusive = false;        // nobody else can have the database open: claims of an earlier process are void
};

class Sql {
 public:
  virtual ~Sql() = default;
  virtual const Dialect& dialect() const = 0;
  virtual Status begin() = 0;
  virtual Status commit() = 0;
  virtual void rollback() noexcept = 0;
  // Parameters are $1, $2, ... in the statement.
  virtual Result<Rows> query(const std::string& statement, const std::vector<Param>& params) = 0;
};

Result<std::unique_ptr<Sql>> open_sqlite(const std::string& path);
Result<std::unique_ptr<Sql>> open_postgres(const std::string& url);

}  // namespace sluice::store
