// Guards that a Machine's statements and expressions nest with. Private to machine_*.cpp.
#pragma once
#include "text/jinja/machine.h"

namespace sluice::text::jinja {

// Counts one level of evaluation, so that macros that call themselves fail before the stack does.
struct Machine::Deeper {
  explicit Deeper(Machine& machine) : m(machine) {
    if (++m.depth_ > kMaxEvalDepth) m.fail("evaluation is nested deeper than " + std::to_string(kMaxEvalDepth));
  }
  ~Deeper() { --m.depth_; }
  Machine& m;
};

// Makes a scope current for its lifetime; a scope that a macro remembers then moves to the Machine.
class Machine::NewScope {
 public:
  NewScope(Machine& machine, Scope* parent) : m_(machine), outer_(machine.scope_), scope_(std::make_unique<Scope>(parent)) {
    m_.charge(2);
    m_.scope_ = scope_.get();
  }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;
  ~NewScope() {
    m_.scope_ = outer_;
    if (scope_->captured) m_.objects_.push_back(std::move(scope_));
  }

 private:
  Machine& m_;
  Scope* outer_;
  std::unique_ptr<Scope> scope_;
};

}  // namespace sluice::text::jinja
