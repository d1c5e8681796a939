#include "http/exchange.h"

namespace sluice::http {
namespace {

class Immediate final : public Exchange {
 public:
  Immediate(int status, Headers headers, std::string body) : body_(std::move(body)) {
    head_.status = status;
    head_.headers = std::move(headers);
  }
  void start(std::function<void()>) override {}
  Poll poll() override {
    if (said_) return {};
    said_ = true;
    return {std::move(head_), std::move(body_), true};
  }
  void abandon() noexcept override {}

 private:
  Head head_;
  std::string body_;
  bool said_ = false;
};

}  // namespace

std::unique_ptr<Exchange> immediate(int status, Headers headers, std::string body) {
  return std::make_unique<Immediate>(status, std::move(headers), std::move(body));
}

}  // namespace sluice::http
