#include "exec/touch_ahead.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <system_error>

namespace sluice::exec {
namespace {

constexpr int kPopulateWrite = 23;           // MADV_POPULATE_WRITE, which older headers lack
constexpr size_t kAtOnce = size_t{2} << 20;  // that a call touches
constexpr int kNice = 10, kPauses = 3;       // steps come first: it rests so many times as long as it works

}  // namespace

TouchAhead::TouchAhead(std::vector<Part> parts, int blocks, size_t ahead_bytes) : parts_(std::move(parts)), blocks_(blocks) {
  size_t bytes = 1;
  for (const Part& p : parts_) bytes += p.stride;
  ahead_ = int(std::min<size_t>(INT_MAX / 4, ahead_bytes / bytes + 1));
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    wanted_ = INT_MAX;  // steps touch it themselves
    return;
  }
  extend(0);
}

TouchAhead::~TouchAhead() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

void TouchAhead::extend(int block) {
  const int wanted = std::min(blocks_, block + ahead_);
  if (wanted <= wanted_) return;
  wanted_ = wanted;
  {
    const std::lock_guard lock(mutex_);
    target_ = wanted;
  }
  asked_.notify_one();
}

void TouchAhead::run() {
  ::setpriority(PRIO_PROCESS, id_t(::syscall(SYS_gettid)), kNice);
  for (int done = 0;;) {
    int target;
    {
      std::unique_lock lock(mutex_);
      asked_.wait(lock, [&] { return stop_ || target_ > done; });
      if (stop_) return;
      target = target_;
    }
    if (!touch(done, target)) return;
    done = target;
  }
}

bool TouchAhead::touch(int begin, int end) {
  const uintptr_t page = uintptr_t(::sysconf(_SC_PAGESIZE));
  for (const Part& p : parts_) {
    const uintptr_t first = uintptr_t(p.data) + size_t(begin) * p.stride, last = uintptr_t(p.data) + size_t(end) * p.stride;
    for (uintptr_t at = first / page * page; at < last; at += kAtOnce) {
      const auto begun = std::chrono::steady_clock::now();
      if (::madvise(reinterpret_cast<void*>(at), std::min<size_t>(kAtOnce, last - at), kPopulateWrite) != 0) return false;  // unknown here, or no memory is left
      std::unique_lock lock(mutex_);
      if (asked_.wait_for(lock, kPauses * (std::chrono::steady_clock::now() - begun), [&] { return stop_; })) return false;
    }
  }
  return true;
}

}  // namespace sluice::exec
