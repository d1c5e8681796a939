// Failure: how lexer, parser and interpreter give up. Thrown inside jinja/ alone; chat_template.cpp turns it into an Error.
#pragma once
#include <string>

namespace sluice::text::jinja {

struct Failure {
  std::string message;
  int line = 0;
  bool raised = false;  // by raise_exception: the message stands alone
};

constexpr int kMaxDepth = 200;  // nesting of syntax and of data

}  // namespace sluice::text::jinja
