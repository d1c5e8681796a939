#include "tests/device/fiber.h"

#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
static void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
static void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

// Leaves what a call must keep on this stack, whose top goes to *from, and takes it from the other.
extern "C" void sluice_change_stack(void** from, void* to);
asm(R"(
.text
.p2align 4
.type sluice_change_stack, @function
sluice_change_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size sluice_change_stack, . - sluice_change_stack
)");

namespace sluice::emulator {
namespace {

constexpr size_t kKept = 6;  // registers
Fiber* starting = nullptr;

}  // namespace

Fiber::Fiber() : stack_(new uint8_t[kStack]) {}

void Fiber::begin(void (*entry)()) {
  entry_ = entry, fake_ = nullptr;
  // As if start() had been called: its return address, none, is at 8 less than a multiple of 16.
  auto** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack_.get()) + kStack) / 16 * 16);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Fiber::start);
  for (size_t i = 0; i < kKept; ++i) *--top = nullptr;
  here_ = top;
}

void Fiber::start() {
  Fiber* f = starting;
  __sanitizer_finish_switch_fiber(nullptr, &f->back_stack_, &f->back_size_);
  f->entry_();
  std::abort();  // it ends by a last pause
}

void Fiber::go_on() {
  starting = this;
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack_.get(), kStack);
  sluice_change_stack(&back_, here_);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

void Fiber::pause(bool last) {
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_, back_stack_, back_size_);
  sluice_change_stack(&here_, back_);
  __sanitizer_finish_switch_fiber(fake_, &back_stack_, &back_size_);
}

}  // namespace sluice::emulator
