// PartFile: a large file that is written piece by piece and may be gone on with after its writer was killed. The pieces go to PATH.part,
// a journal beside it names those that are whole. finish renames the part and removes the journal and a state, so that PATH is either
// absent, what it was before, or complete.
// Threads: write from several at once; the rest from one. Errors: kIo with the system's reason; kUnavailable: another process writes it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::format {

// What work needs to go on, in PATH.state: what was saved last, if it is of the same fingerprint and undamaged. number is the caller's.
Status save_state(const std::string& path, uint64_t fingerprint, int number, std::span<const float> values);
bool load_state(const std::string& path, uint64_t fingerprint, int& number, std::vector<float>& values);
void drop_state(const std::string& path);

class PartFile {
 public:
  // fingerprint: of all that decides the bytes. A part whose journal has another is begun anew.
  static Result<PartFile> open(const std::string& path, uint64_t fingerprint, size_t pieces, uint64_t file_bytes);
  PartFile(PartFile&& o) noexcept;
  ~PartFile();

  bool resumed() const { return resumed_; }
  bool done(size_t piece) const { return done_[piece]; }
  Status write(uint64_t offset, std::span<const uint8_t> bytes);
  Status read(uint64_t offset, std::span<uint8_t> bytes) const;  // what was written
  Status mark(size_t piece);
  // As above, beside this file.
  Status save_state(int number, std::span<const float> values) { return format::save_state(path_, fingerprint_, number, values); }
  bool load_state(int& number, std::vector<float>& values) const { return format::load_state(path_, fingerprint_, number, values); }
  Status finish();

 private:
  PartFile() = default;
  Status read_journal();

  std::string path_;
  uint64_t fingerprint_ = 0;
  int fd_ = -1, journal_ = -1;
  bool resumed_ = false;
  std::vector<bool> done_;
};

// Of bytes, for fingerprints: FNV-1a over words of eight bytes, then the rest.
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 14695981039346656037ull);

}  // namespace sluice::format
