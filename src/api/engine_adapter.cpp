#include "api/engine_port.h"
#include "engine/engine.h"

namespace sluice::api {
namespace {

class EngineAdapter final : public EnginePort {
 public:
  explicit EngineAdapter(engine::Engine* engine) : engine_(engine) {}
  Status submit(sched::Submission submission) override { return engine_->submit(std::move(submission)); }
  void poke() override { engine_->poke(); }
  const engine::Stats& stats() const override { return static_cast<const engine::Engine*>(engine_)->stats(); }
  bool healthy(std::string& reason) const override {
    engine::Health health = engine_->health();
    reason = std::move(health.reason);
    return health.healthy;
  }
  void drain() override { engine_->drain(); }
  int64_t kv_tokens() const override { return engine_->kv_tokens(); }
  int retry_after_s() const override { return engine_->retry_after_s(); }

 private:
  engine::Engine* engine_;
};

}  // namespace

std::shared_ptr<EnginePort> port_of(engine::Engine* engine) { return std::make_shared<EngineAdapter>(engine); }

}  // namespace sluice::api
