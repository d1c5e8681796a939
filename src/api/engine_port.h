// EnginePort: what api/ asks of an engine. One adapter stands over engine::Engine; tests put a scripted engine here.
// Every method may be called from any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/stats.h"
#include "sched/request.h"

namespace sluice::engine {
class Engine;
}

namespace sluice::api {

class EnginePort {
 public:
  virtual ~EnginePort() = default;
  // As engine::Engine::submit: on error the sink is never called.
  virtual Status submit(sched::Submission submission) = 0;
  virtual void poke() = 0;
  virtual const engine::Stats& stats() const = 0;
  virtual bool healthy(std::string& reason) const = 0;
  virtual void drain() = 0;
  virtual int64_t kv_tokens() const = 0;       // <= 0: unknown
  virtual int retry_after_s() const = 0;
};

// The engine must outlive every exchange that was made over it.
std::shared_ptr<EnginePort> port_of(engine::Engine* engine);

}  // namespace sluice::api
