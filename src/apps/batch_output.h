// BatchOutput: the result file of an offline batch, which is also the record of what is done: one line a result, appended by
// one write. A process that died left at most a part of a line, which is cut off when the file is opened again. One thread.
#pragma once
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/result.h"

namespace sluice::apps {

class BatchOutput {
 public:
  BatchOutput() = default;
  BatchOutput(BatchOutput&& other) noexcept;
  ~BatchOutput();
  // Makes the file, or reads what it holds. Errors: kIo, kBadFile naming the line.
  static Result<BatchOutput> open(const std::string& path);

  const std::unordered_set<std::string>& done() const { return done_; }   // custom_ids
  int64_t ok() const { return ok_; }
  int64_t failed() const { return failed_; }
  Status append(const std::string& custom_id, bool ok, std::string_view line);
  Status flush();              // to the disk

 private:
  Status read();
  Status take(std::string_view line);
  Error error(const std::string& what) const;

  std::string path_;
  int fd_ = -1;
  int64_t lines_ = 0, ok_ = 0, failed_ = 0;
  std::unordered_set<std::string> done_;
};

}  // namespace sluice::apps
