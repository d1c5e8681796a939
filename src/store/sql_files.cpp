// Files: a row, and its content in pieces, so that neither an upload nor a download is ever one huge value.
#include "store/sql_store.h"

namespace sluice::store {

const char* const kFileColumns = "id, filename, purpose, bytes, created_s, expires_s";

File file_of(const Row& row) {
  return {row[0], row[1], row[2], to_number(row[3]), to_number(row[4]), to_number(row[5])};
}

Status SqlStore::check_room(int64_t bytes) {
  if (bytes > limits_.file_bytes)
    return Error{ErrorCode::kTooLarge, "file has " + std::to_string(bytes) + " bytes; the limit is " + std::to_string(limits_.file_bytes), "file"};
  SLUICE_ASSIGN(const int64_t files, number("SELECT count(*) FROM files"));
  if (files >= limits_.files)
    return Error{ErrorCode::kTooLarge, "the store holds " + std::to_string(files) + " files, which is its limit: delete some first", "file"};
  SLUICE_ASSIGN(const int64_t used, number("SELECT COALESCE(sum(bytes), 0) FROM files"));
  if (used + bytes > limits_.all_bytes)
    return Error{ErrorCode::kTooLarge, "the store holds " + std::to_string(used) + " bytes of its limit of " +
                     std::to_string(limits_.all_bytes) + ": delete files first", "file"};
  return {};
}

Status SqlStore::insert_file(const File& f) {
  SLUICE_TRY(query("INSERT INTO files (id, filename, purpose, bytes, created_s, expires_s) VALUES ($1, $2, $3, $4, $5, $6)",
                   {f.id, f.filename, f.purpose, f.bytes, f.created_s, f.expires_s}));
  return {};
}

Status SqlStore::insert_chunk(const std::string& file_id, int64_t index, std::string_view bytes) {
  SLUICE_TRY(query("INSERT INTO file_chunks (file_id, idx, content) VALUES ($1, $2, $3)", {file_id, index, Bytes{bytes}}));
  return {};
}

Result<File> SqlStore::create_file(File file, std::string_view content) {
  file.id = fresh_id("file-");
  file.bytes = int64_t(content.size());
  return transact([&]() -> Result<File> {
    SLUICE_TRY(check_room(file.bytes));
    SLUICE_TRY(insert_file(file));
    for (int64_t i = 0; i * kChunkBytes < file.bytes; ++i)
      SLUICE_TRY(insert_chunk(file.id, i, content.substr(size_t(i * kChunkBytes), size_t(kChunkBytes))));
    return file;
  });
}

Result<File> SqlStore::find_file(const std::string& id) {
  Rows rows;
  if (is_plain(id)) {
    SLUICE_ASSIGN(rows, query(std::string("SELECT ") + kFileColumns + " FROM files WHERE id = $1", {id}));
  }
  if (rows.empty()) return Error{ErrorCode::kNotFound, "no such file: " + id.substr(0, 80), "file_id"};
  return file_of(rows[0]);
}

Result<File> SqlStore::file(const std::string& id) {
  return transact([&] { return find_file(id); });
}

Result<std::vector<File>> SqlStore::files(const FileQuery& q) {
  if (!is_plain(q.purpose)) return std::vector<File>();
  return transact([&]() -> Result<std::vector<File>> {
    int64_t from = q.ascending ? 0 : INT64_MAX;
    if (!q.after.empty()) {
      SLUICE_ASSIGN(from, place_of("files", q.after, "file"));
    }
    SLUICE_ASSIGN(const Rows rows, query(std::string("SELECT ") + kFileColumns + " FROM files WHERE seq " + (q.ascending ? ">" : "<") +
                                             " $1 AND ($2 = '' OR purpose = $2) ORDER BY seq" + (q.ascending ? "" : " DESC") + " LIMIT $3",
                                         {from, q.purpose, q.limit}));
    std::vector<File> out;
    for (const Row& row : rows) out.push_back(file_of(row));
    return out;
  });
}

Result<std::string> SqlStore::file_chunk(const std::string& id, int64_t index) {
  return transact([&]() -> Result<std::string> {
    SLUICE_ASSIGN(Rows rows, query("SELECT content FROM file_chunks WHERE file_id = $1 AND idx = $2", {id, index}));
    if (!rows.empty()) return std::move(rows[0][0]);
    SLUICE_TRY(find_file(id));   // deleted, or behind its end
    return std::string();
  });
}

Status SqlStore::delete_file(const std::string& id) {
  return transact([&]() -> Status {
    SLUICE_TRY(find_file(id));
    SLUICE_TRY(query("DELETE FROM file_chunks WHERE file_id = $1", {id}));
    SLUICE_TRY(query("DELETE FROM files WHERE id = $1", {id}));
    return {};
  });
}

Status SqlStore::purge(int64_t now_s) {
  return transact([&]() -> Status {
    SLUICE_TRY(query("DELETE FROM file_chunks WHERE file_id IN (SELECT id FROM files WHERE expires_s > 0 AND expires_s <= $1)", {now_s}));
    SLUICE_TRY(query("DELETE FROM files WHERE expires_s > 0 AND expires_s <= $1", {now_s}));
    SLUICE_TRY(query("DELETE FROM jobs WHERE state IN ($1, $2, $3, $4) AND expires_s <= $5",
                     {int64_t(JobState::kFailed), int64_t(JobState::kCompleted), int64_t(JobState::kExpired), int64_t(JobState::kCancelled),
                      now_s - kEndedJobsKept}));
    return {};
  });
}

}  // namespace sluice::store
