#include "api/jobs.h"

#include <mutex>
#include <optional>
#include <utility>

#include "api/reply.h"

namespace sluice::api {
namespace {

constexpr size_t kMaxTasks = 256;
constexpr std::chrono::microseconds kIdleWait{100'000};

// What a task on the store's thread leaves for the connection's: a value, once, and a wake.
template <class T>
class Mailbox {
 public:
  void set_wake(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void put(T value) {
    std::function<void()> wake;
    {
      std::lock_guard lock(mutex_);
      value_.emplace(std::move(value));
      wake = wake_;
    }
    if (wake) wake();
  }
  std::optional<T> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(value_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
  std::optional<T> value_;
};

class FromStore final : public http::Exchange {
 public:
  FromStore(Call&& call, StoreHandler make) : call_(std::make_shared<Call>(std::move(call))), make_(std::move(make)) {}

  void start(std::function<void()> wake) override {
    wake_ = wake;
    box_->set_wake(std::move(wake));
    const bool posted = call_->context->jobs->post([call = call_, make = make_, box = box_](store::JobStore& store) {
      try {
        box->put(make(*call, store));
      } catch (const std::exception&) {   // a bug, or memory
        box->put(error_reply({ErrorCode::kInternal, "the request could not be handled", {}}, call->context->front()));
      }
    });
    if (!posted) inner_ = error_reply({ErrorCode::kOverloaded, "too many requests wait for the store", {}}, call_->context->front());
  }
  http::Poll poll() override {
    if (!inner_) {
      auto answer = box_->take();
      if (!answer) return {};
      inner_ = std::move(*answer);
      inner_->start(wake_);
    }
    return inner_->poll();
  }
  void abandon() noexcept override {
    if (inner_) inner_->abandon();
  }

 private:
  std::shared_ptr<Call> call_;
  StoreHandler make_;
  std::function<void()> wake_;
  std::shared_ptr<Mailbox<std::unique_ptr<http::Exchange>>> box_ = std::make_shared<Mailbox<std::unique_ptr<http::Exchange>>>();
  std::unique_ptr<http::Exchange> inner_;
};

class Content final : public http::Exchange {
 public:
  Content(std::shared_ptr<Context> context, store::File file) : context_(std::move(context)), file_(std::move(file)) {}

  void start(std::function<void()> wake) override {
    box_->set_wake(std::move(wake));
    ask();
  }
  http::Poll poll() override {
    http::Poll out;
    auto chunk = box_->take();
    if (!chunk) return out;
    if (!chunk->ok()) {
      if (!head_sent_) {
        out.head = error_head(chunk->error(), context_->front());
        out.body = error_text(chunk->error());
      }
      out.done = true;
      out.broken = head_sent_;
      return out;
    }
    if (!head_sent_) out.head = http::Head{200, {{"Content-Type", "application/octet-stream"}}, true};
    head_sent_ = true;
    sent_ += int64_t((*chunk)->size());
    out.done = (*chunk)->empty() || sent_ >= file_.bytes;
    out.body = std::move(**chunk);
    if (!out.done) ask();
    return out;
  }
  void abandon() noexcept override {}

 private:
  void ask() {
    const bool posted = context_->jobs->post([id = file_.id, index = next_++, box = box_](store::JobStore& store) { box->put(store.file_chunk(id, index)); });
    if (!posted) box_->put(Error{ErrorCode::kOverloaded, "too many requests wait for the store", {}});
  }

  std::shared_ptr<Context> context_;
  store::File file_;
  std::shared_ptr<Mailbox<Result<std::string>>> box_ = std::make_shared<Mailbox<Result<std::string>>>();
  int64_t next_ = 0, sent_ = 0;
  bool head_sent_ = false;
};

}  // namespace

Jobs::Jobs(std::shared_ptr<Context> context, std::unique_ptr<store::JobStore> store, BatchOptions options)
    : store_(std::move(store)), runner_(std::make_unique<BatchRunner>(std::move(context), store_.get(), options)), tasks_(kMaxTasks) {
  thread_ = std::thread([this] { run(); });
}

Jobs::~Jobs() {
  stop_ = true;
  tasks_.close();
  thread_.join();
}

bool Jobs::post(Task task) { return tasks_.try_push(std::move(task)); }

void Jobs::run() {
  std::vector<Task> tasks;
  while (!stop_) {
    tasks_.drain(tasks, kIdleWait);
    for (Task& task : tasks) {
      if (stop_) break;
      task(*store_);
    }
    tasks.clear();
  }
}

std::unique_ptr<http::Exchange> answer_from_store(Call&& call, StoreHandler make) {
  if (!call.context->jobs)
    return error_reply({ErrorCode::kUnsupported, "this server keeps no files or batches: it has no store (see --store)", {}}, call.context->front());
  return std::make_unique<FromStore>(std::move(call), std::move(make));
}

std::unique_ptr<http::Exchange> file_content(const Call& call, const store::File& file) {
  return std::make_unique<Content>(call.context, file);
}

}  // namespace sluice::api
