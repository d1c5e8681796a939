// TouchAhead: a thread that touches a cache's memory before steps write to it. The system clears memory when it is first written, a huge
// page at a time; several layers reach a new page in the same step, which then takes twice its time (measured: 22 ms in the place of 11,
// every 46th step of eight chats). As much as is used and ahead_bytes more is touched, so that an idle server stays small.
// Where the system cannot be asked (Linux before 5.14) nothing happens. Threads: reach() by one at a time.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::exec {

class TouchAhead {
 public:
  static constexpr size_t kAheadBytes = size_t{256} << 20;
  // Block b is at data + b * stride.
  struct Part {
    void* data;
    size_t stride;
  };
  TouchAhead(std::vector<Part> parts, int blocks, size_t ahead_bytes = kAheadBytes);
  ~TouchAhead();
  TouchAhead(const TouchAhead&) = delete;
  TouchAhead& operator=(const TouchAhead&) = delete;
  // Blocks up to this one are in use.
  void reach(int block) {
    if (block + ahead_ / 2 >= wanted_) extend(block);
  }

 private:
  void extend(int block);
  void run();
  bool touch(int begin, int end);  // false: to stop

  std::vector<Part> parts_;
  int blocks_, ahead_, wanted_ = 0;  // wanted_: as last asked for; of reach()'s thread
  std::mutex mutex_;
  std::condition_variable asked_;
  int target_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sluice::exec
