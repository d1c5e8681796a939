#include "format/part_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace sluice::format {
namespace {

bool write_all(int fd, const void* data, size_t bytes, int64_t offset) {
  const auto* p = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t n = offset < 0 ? ::write(fd, p, bytes) : ::pwrite(fd, p, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    bytes -= size_t(n);
    if (offset >= 0) offset += n;
  }
  return true;
}

Error failed(const std::string& file) { return {ErrorCode::kIo, file + ": " + std::strerror(errno), {}}; }

struct StateHead {
  uint64_t fingerprint, count, hash;
  int64_t number;
};

}  // namespace

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t h) {
  const auto* p = static_cast<const uint8_t*>(data);
  const auto add = [&](uint64_t word) {
    h = (h ^ word) * 1099511628211ull;
    h ^= h >> 29;
  };
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    add(word);
  }
  for (; bytes > 0; --bytes, ++p) add(*p);
  return h;
}

PartFile::PartFile(PartFile&& o) noexcept
    : path_(std::move(o.path_)), fingerprint_(o.fingerprint_), fd_(std::exchange(o.fd_, -1)), journal_(std::exchange(o.journal_, -1)), resumed_(o.resumed_), done_(std::move(o.done_)) {}

PartFile::~PartFile() {
  if (fd_ >= 0) ::close(fd_);
  if (journal_ >= 0) ::close(journal_);
}

Result<PartFile> PartFile::open(const std::string& path, uint64_t fingerprint, size_t pieces, uint64_t file_bytes) {
  PartFile p;
  p.path_ = path;
  p.fingerprint_ = fingerprint;
  p.done_.assign(pieces, false);
  const std::string part = path + ".part", journal = path + ".journal";
  p.fd_ = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (p.fd_ < 0) return failed(part);
  if (::flock(p.fd_, LOCK_EX | LOCK_NB) != 0) return Error{ErrorCode::kUnavailable, part + ": another process is writing it", {}};
  p.journal_ = ::open(journal.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (p.journal_ < 0) return failed(journal);
  struct stat st {};
  const bool whole = ::fstat(p.fd_, &st) == 0 && uint64_t(st.st_size) == file_bytes;
  if (whole) SLUICE_TRY(p.read_journal());
  if (p.resumed_) return p;
  p.done_.assign(pieces, false);
  drop_state(path);
  char head[32];
  const int n = std::snprintf(head, sizeof head, "pieces %016lx\n", (unsigned long)fingerprint);
  if (::ftruncate(p.journal_, 0) != 0 || ::ftruncate(p.fd_, 0) != 0 || ::ftruncate(p.fd_, off_t(file_bytes)) != 0) return failed(part);
  if (!write_all(p.journal_, head, size_t(n), -1)) return failed(journal);
  return p;
}

// A line that was cut off counts for nothing, and must not run into the next one.
Status PartFile::read_journal() {
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = ::read(journal_, buffer, sizeof buffer)) > 0 && text.size() < (size_t{1} << 26)) text.append(buffer, size_t(n));
  if (n < 0) return failed(path_ + ".journal");
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  unsigned long fingerprint = 0;
  int at = 0;
  if (std::sscanf(text.c_str(), "pieces %16lx\n%n", &fingerprint, &at) != 1 || fingerprint != fingerprint_) return {};
  const char* p = text.c_str() + at;
  for (char* end; *p; p = end) {
    const unsigned long piece = std::strtoul(p, &end, 10);
    if (end == p) break;
    if (piece < done_.size()) done_[piece] = true;
  }
  if (::ftruncate(journal_, off_t(text.size())) != 0) return failed(path_ + ".journal");
  resumed_ = true;
  return {};
}

Status PartFile::write(uint64_t offset, std::span<const uint8_t> bytes) {
  return write_all(fd_, bytes.data(), bytes.size(), int64_t(offset)) ? Status{} : Status(failed(path_ + ".part"));
}

Status PartFile::read(uint64_t offset, std::span<uint8_t> bytes) const {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::pread(fd_, bytes.data() + at, bytes.size() - at, off_t(offset + at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed(path_ + ".part");
    at += size_t(n);
  }
  return {};
}

Status PartFile::mark(size_t piece) {
  const std::string line = std::to_string(piece) + "\n";
  if (!write_all(journal_, line.data(), line.size(), -1)) return failed(path_ + ".journal");
  done_[piece] = true;
  return {};
}

Status save_state(const std::string& path, uint64_t fingerprint, int number, std::span<const float> values) {
  const std::string name = path + ".state", temporary = name + ".new";
  const StateHead head{fingerprint, values.size(), hash_bytes(values.data(), values.size_bytes()), number};
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return failed(temporary);
  const bool written = write_all(fd, &head, sizeof head, -1) && write_all(fd, values.data(), values.size_bytes(), -1);
  if (::close(fd) != 0 || !written || ::rename(temporary.c_str(), name.c_str()) != 0) return failed(temporary);
  return {};
}

bool load_state(const std::string& path, uint64_t fingerprint, int& number, std::vector<float>& values) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen((path + ".state").c_str(), "rb"), std::fclose);
  StateHead head{};
  struct stat st {};
  if (!file || std::fread(&head, sizeof head, 1, file.get()) != 1 || head.fingerprint != fingerprint) return false;
  if (::fstat(::fileno(file.get()), &st) != 0 || head.count > uint64_t(st.st_size) / sizeof(float)) return false;
  values.resize(head.count);
  if (std::fread(values.data(), sizeof(float), values.size(), file.get()) != values.size()) return false;
  number = int(head.number);
  return hash_bytes(values.data(), values.size() * sizeof(float)) == head.hash;
}

Status PartFile::finish() {
  for (size_t i = 0; i < done_.size(); ++i) SLUICE_CHECK(done_[i]);
  const std::string part = path_ + ".part";
  if (::fsync(fd_) != 0 || ::rename(part.c_str(), path_.c_str()) != 0) return failed(part);
  ::unlink((path_ + ".journal").c_str());
  drop_state(path_);
  return {};
}

void drop_state(const std::string& path) {
  ::unlink((path + ".state").c_str());
  ::unlink((path + ".state.new").c_str());
}

}  // namespace sluice::format
