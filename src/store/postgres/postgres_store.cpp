// PostgreSQL as the store's database, through libpqxx 6 or 7. A connection that broke is opened again by the next begin().
#include <pqxx/pqxx>

#include <array>
#include <optional>
#include <utility>

#include "store/sql.h"

namespace sluice::store {
namespace {

constexpr size_t kMaxParams = 32;
constexpr int kByteaType = 17;      // the type's fixed number in PostgreSQL

// Any number, the same for every server: who makes the tables waits for whoever is at it.
constexpr Dialect kDialect{.serial = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", .bytes = "BYTEA",
                           .now = "CAST(extract(epoch FROM clock_timestamp()) AS BIGINT)",
                           .skip_locked = " FOR UPDATE OF t SKIP LOCKED", .lock = " FOR UPDATE",
                           .schema_lock = "SELECT pg_advisory_xact_lock(7311982016)", .exclusive = false};

constexpr char kHex[] = "0123456789abcdef";

// Everything travels as text: the database knows each parameter's type from the statement.
std::string text_of(const Param& param) {
  if (const auto* number = std::get_if<int64_t>(&param)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string_view>(&param)) return std::string(*text);
  const std::string_view bytes = std::get<Bytes>(param).bytes;
  std::string out = "\\x";
  out.reserve(2 + 2 * bytes.size());
  for (const char c : bytes) (out += kHex[uint8_t(c) >> 4]) += kHex[uint8_t(c) & 15];
  return out;
}

int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

std::string bytes_of(std::string_view text) {
  std::string out;
  if (!text.starts_with("\\x")) return out;
  out.reserve(text.size() / 2);
  for (size_t i = 2; i + 1 < text.size(); i += 2) out += char(digit(text[i]) * 16 + digit(text[i + 1]));
  return out;
}

// exec_params takes its parameters one by one; their number is known at run time alone.
using Run = pqxx::result (*)(pqxx::work&, const std::string&, const std::vector<std::string>&);
template <size_t... I>
pqxx::result run_with(pqxx::work& work, const std::string& text, const std::vector<std::string>& p, std::index_sequence<I...>) {
  return work.exec_params(text, p[I]...);
}
template <size_t N>
pqxx::result run_n(pqxx::work& work, const std::string& text, const std::vector<std::string>& p) {
  return run_with(work, text, p, std::make_index_sequence<N>());
}
template <size_t... N>
constexpr std::array<Run, sizeof...(N)> run_table(std::index_sequence<N...>) { return {run_n<N>...}; }
constexpr auto kRun = run_table(std::make_index_sequence<kMaxParams + 1>());

class Postgres final : public Sql {
 public:
  explicit Postgres(std::string url) : url_(std::move(url)) {}
  ~Postgres() override { rollback(); }

  const Dialect& dialect() const override { return kDialect; }
  Status begin() override {
    return guarded([&] {
      if (!connection_) {
        connection_.emplace(url_);
        pqxx::work setup(*connection_);
        setup.exec("SET bytea_output = hex");
        setup.commit();
      }
      work_.emplace(*connection_);
    });
  }
  Status commit() override {
    Status status = guarded([&] { work_->commit(); });
    if (status.ok()) work_.reset();
    return status;
  }
  void rollback() noexcept override {
    try {
      work_.reset();   // a transaction that was not committed is undone
    } catch (...) {
      connection_.reset();
    }
  }
  Result<Rows> query(const std::string& text, const std::vector<Param>& params) override {
    SLUICE_CHECK(work_ && params.size() <= kMaxParams);
    Rows rows;
    SLUICE_TRY(guarded([&] {
      std::vector<std::string> texts;
      for (const Param& p : params) texts.push_back(text_of(p));
      const pqxx::result result = kRun[texts.size()](*work_, text, texts);
      for (const auto& row : result) {
        Row out;
        for (const auto& field : row)
          out.push_back(int(field.type()) == kByteaType ? bytes_of({field.c_str(), field.size()}) : std::string(field.c_str(), field.size()));
        rows.push_back(std::move(out));
      }
    }));
    return rows;
  }

 private:
  template <class F>
  Status guarded(F&& f) {
    try {
      f();
      return {};
    } catch (const pqxx::broken_connection& e) {
      drop();
      return failure(e.what());
    } catch (const std::exception& e) {
      return failure(e.what());
    }
  }
  void drop() noexcept {
    rollback();
    connection_.reset();
  }
  // The URL may hold a password: it is not repeated.
  static Error failure(std::string message) {
    while (!message.empty() && (message.back() == '\n' || message.back() == ' ')) message.pop_back();
    return {ErrorCode::kIo, "PostgreSQL: " + message, "--store"};
  }

  std::string url_;
  std::optional<pqxx::connection> connection_;
  std::optional<pqxx::work> work_;    // goes before its connection
};

}  // namespace

Result<std::unique_ptr<Sql>> open_postgres(const std::string& url) {
  auto out = std::make_unique<Postgres>(url);
  SLUICE_TRY(out->begin());
  SLUICE_TRY(out->commit());
  return std::unique_ptr<Sql>(std::move(out));
}

}  // namespace sluice::store
