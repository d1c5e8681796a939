// Service: the OpenAI API over engines. Turns http::Request into Submissions and TokenEvents into replies; owns no
// socket. One Service serves every connection thread at once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/api_key.h"
#include "api/pool.h"
#include "base/clock.h"
#include "http/exchange.h"
#include "store/job_store.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice::api {

// What the API needs to know of the model that is served. Immutable.
struct ServedModel {
  std::string id;                                        // name in requests and replies
  std::vector<std::string> aliases;
  int64_t created_s = 0;
  int max_context = 0;                                   // tokens, prompt and output together
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: the model has none
};

struct ServiceOptions {
  std::vector<ApiKey> api_keys;                          // empty: open
  std::string cors_origin = "*";                         // "" sends no CORS headers
  TimeUs queue_timeout_us = 0;                           // how long a request may wait to be begun; 0: for ever. Not a batch's lines
};

struct BatchOptions {
  int concurrency = 64;                                  // lines of batches in the engine at once
  TimeUs poll_us = 500'000;                              // how often the store is asked what others have changed in it
};

class Service {
 public:
  // The pools' engines must outlive the server whose connections hold this service's exchanges.
  Service(ServiceOptions options, ServedModel model, std::vector<Pool> pools);
  ~Service();
  // Serves /v1/files and /v1/batches from this store, and runs its jobs. Before the first request; at most once.
  void attach_store(std::unique_ptr<store::JobStore> store, BatchOptions options);
  // The http::Handler. Authentication, CORS, routing, then the endpoint.
  std::unique_ptr<http::Exchange> handle(http::Request&& request);
  // /health answers 503 from here on; the engines refuse new work.
  void drain();

 private:
  std::shared_ptr<struct Context> context_;
  std::unique_ptr<class Jobs> jobs_;
};

// The answer to everything while a model is still being loaded: 503.
std::unique_ptr<http::Exchange> loading_reply();

// What calls over this model and these engines share; for drivers that ask without HTTP.
std::shared_ptr<struct Context> make_context(ServiceOptions options, ServedModel model, std::vector<Pool> pools);

}  // namespace sluice::api
