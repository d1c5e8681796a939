#include "api/line_runner.h"

#include <algorithm>
#include <thread>

#include "api/json.h"

namespace sluice::api {
namespace {

// Tokens come at every step of the engine, and nobody reads along: they are gathered for a moment.
constexpr std::chrono::milliseconds kGather{2};

}  // namespace

struct LineRunner::Slot {
  store::Line line;
  std::string request_id;
  std::unique_ptr<http::Exchange> exchange;
  std::shared_ptr<std::atomic<bool>> woken = std::make_shared<std::atomic<bool>>(true);
  int status = 0;
  std::string body;
};

LineRunner::LineRunner(std::shared_ptr<Context> context, int concurrency) : context_(std::move(context)), concurrency_(concurrency) {}
LineRunner::~LineRunner() {
  drop([](const store::Line&) { return true; });
}

void LineRunner::Signal::raise() {
  {
    std::lock_guard lock(mutex);
    raised = true;
  }
  ready.notify_one();
}

void LineRunner::notify() { signal_->raise(); }

void LineRunner::start(store::Line line) {
  auto slot = std::make_unique<Slot>();
  slot->request_id = fresh_request_id();
  Call call{context_, {}, slot->request_id, {}, nullptr, true};
  call.request.method = "POST";
  call.request.path = line.url;
  call.request.body = line.body;
  slot->line = std::move(line);
  const Endpoint* endpoint = batch_endpoint(slot->line.url);
  SLUICE_CHECK(endpoint != nullptr);   // BatchInput has checked it
  slot->exchange = endpoint->handle(std::move(call));
  slot->exchange->start([signal = signal_, woken = slot->woken] {
    woken->store(true, std::memory_order_release);
    signal->raise();
  });
  slots_.push_back(std::move(slot));
  signal_->raise();                    // what is ready at once wakes nobody
}

bool LineRunner::poll(Slot& slot) {
  if (!slot.woken->exchange(false, std::memory_order_acq_rel)) return false;
  http::Poll news = slot.exchange->poll();
  if (news.head) slot.status = news.head->status;
  slot.body += news.body;
  return news.done;
}

namespace {

LineDone ending(store::Line&& line, const std::string& request_id, int status, std::string&& body) {
  LineDone out;
  out.line = std::move(line);
  out.refused = status == 429 || status == 503;
  if (out.refused) return out;
  out.result.ok = status >= 200 && status < 300;
  out.result.text = result_line(out.line.custom_id, "{\"status_code\":" + std::to_string(status) + ",\"request_id\":" +
                                                        json_string(request_id) + ",\"body\":" + body + "}", {});
  if (!out.result.ok) return out;
  const auto reply = parse_json(body);   // our own, and yet only as large as the limits of what is parsed
  if (!reply.ok() || !reply->contains("usage")) return out;
  const Json& usage = (*reply)["usage"];
  out.result.prompt_tokens = usage.value("prompt_tokens", int64_t{0});
  out.result.completion_tokens = usage.value("completion_tokens", int64_t{0});
  if (usage.contains("prompt_tokens_details")) out.result.cached_tokens = usage["prompt_tokens_details"].value("cached_tokens", int64_t{0});
  return out;
}

}  // namespace

std::vector<LineDone> LineRunner::wait(std::chrono::microseconds at_most) {
  {
    std::unique_lock lock(signal_->mutex);
    signal_->ready.wait_for(lock, at_most, [&] { return signal_->raised; });
  }
  if (at_most.count() > 0 && !slots_.empty()) std::this_thread::sleep_for(kGather);
  {
    std::lock_guard lock(signal_->mutex);
    signal_->raised = false;
  }
  std::vector<LineDone> out;
  std::erase_if(slots_, [&](std::unique_ptr<Slot>& slot) {
    if (!poll(*slot)) return false;
    out.push_back(ending(std::move(slot->line), slot->request_id, slot->status, std::move(slot->body)));
    return true;
  });
  return out;
}

std::vector<store::Line> LineRunner::drop(const std::function<bool(const store::Line&)>& which) {
  std::vector<store::Line> out;
  std::erase_if(slots_, [&](std::unique_ptr<Slot>& slot) {
    if (!which(slot->line)) return false;
    slot->exchange->abandon();
    out.push_back(std::move(slot->line));
    return true;
  });
  return out;
}

std::vector<std::string> LineRunner::jobs() const {
  std::vector<std::string> out;
  for (const auto& slot : slots_) out.push_back(slot->line.job_id);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string result_line(const std::string& custom_id, std::string_view response, std::string_view error) {
  std::string out = "{\"id\":\"batch_req_" + fresh_request_id() + "\",\"custom_id\":" + json_string(custom_id) + ",\"response\":";
  out.append(response.empty() ? "null" : response).append(",\"error\":").append(error.empty() ? "null" : error).append("}");
  return out;
}

}  // namespace sluice::api
