#include "apps/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "api/json.h"

namespace sluice::apps {

BatchOutput::BatchOutput(BatchOutput&& o) noexcept
    : path_(std::move(o.path_)), fd_(std::exchange(o.fd_, -1)), lines_(o.lines_), ok_(o.ok_), failed_(o.failed_), done_(std::move(o.done_)) {}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) ::close(fd_);
}

Error BatchOutput::error(const std::string& what) const { return {ErrorCode::kIo, path_ + ": " + what + ": " + std::strerror(errno), "output"}; }

Result<BatchOutput> BatchOutput::open(const std::string& path) {
  BatchOutput out;
  out.path_ = path;
  out.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (out.fd_ < 0) return out.error("cannot be written");
  if (::flock(out.fd_, LOCK_EX | LOCK_NB) != 0) return out.error("another process is writing it");
  SLUICE_TRY(out.read());
  return Result<BatchOutput>(std::move(out));
}

Status BatchOutput::read() {
  std::string text;
  std::vector<char> piece(1 << 20);
  off_t whole = 0;             // bytes of complete lines
  for (ssize_t n; (n = ::read(fd_, piece.data(), piece.size())) != 0;) {
    if (n < 0) return error("cannot be read");
    text.append(piece.data(), size_t(n));
    size_t at = 0;
    for (size_t end; (end = text.find('\n', at)) != text.npos; at = end + 1) SLUICE_TRY(take(std::string_view(text).substr(at, end - at)));
    whole += off_t(at);
    text.erase(0, at);
  }
  if (!text.empty() && ::ftruncate(fd_, whole) != 0) return error("its last, broken line cannot be cut off");
  return {};
}

Status BatchOutput::take(std::string_view line) {
  ++lines_;
  const auto json = api::parse_body(line);
  if (!json.ok() || !json->contains("custom_id") || !(*json)["custom_id"].is_string())
    return bad_file(path_ + ": line " + std::to_string(lines_) + " is no result of a batch; remove the file or name another");
  if (!done_.insert((*json)["custom_id"].get<std::string>()).second)
    return bad_file(path_ + ": line " + std::to_string(lines_) + " repeats a custom_id");
  const api::Json* response = json->contains("response") ? &(*json)["response"] : nullptr;
  const bool ok = response && response->is_object() && response->value("status_code", 0) == 200;
  ++(ok ? ok_ : failed_);
  return {};
}

Status BatchOutput::append(const std::string& custom_id, bool ok, std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::write(fd_, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return error("cannot be written");
    at += size_t(n);
  }
  done_.insert(custom_id);
  ++(ok ? ok_ : failed_);
  return {};
}

Status BatchOutput::flush() { return ::fdatasync(fd_) == 0 ? Status() : Status(error("cannot be flushed")); }

}  // namespace sluice::apps
