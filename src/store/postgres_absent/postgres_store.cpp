// In place of postgres/ where libpqxx is not there at build time.
#include "store/sql.h"

namespace sluice::store {

Result<std::unique_ptr<Sql>> open_postgres(const std::string&) {
  return Error{ErrorCode::kUnsupported, "this build has no PostgreSQL: install libpqxx-dev and build again, or give the path of a SQLite file", "--store"};
}

}  // namespace sluice::store
