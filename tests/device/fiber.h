// A function that runs in turns, on a stack of its own. A device's threads change places many millions of times in a test, so the change is a few instructions
// (x86-64's, as the CPU's kernels are) rather than a system call each.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::emulator {

class Fiber {
 public:
  Fiber();
  // From the beginning; what ran here before is forgotten, with what it held.
  void begin(void (*entry)());
  // Until it pauses or, with `last`, for good; called by the thread that began it.
  void go_on();
  void pause(bool last = false);

 private:
  static constexpr size_t kStack = 192 * 1024;
  static void start();
  std::unique_ptr<uint8_t[]> stack_;
  void (*entry_)() = nullptr;
  void *here_ = nullptr, *back_ = nullptr;  // where it stopped, and where who let it go on did
  // For a sanitizer, which wants to know of stacks.
  void* fake_ = nullptr;
  const void* back_stack_ = nullptr;
  size_t back_size_ = 0;
};

}  // namespace sluice::emulator
