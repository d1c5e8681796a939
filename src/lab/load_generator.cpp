#include "lab/load_generator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "http/client.h"
#include "lab/load_tally.h"
#include "model/random_vocab.h"

namespace sluice::lab {
namespace {

using Json = nlohmann::json;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Outcome {
  int status = 0;
  std::string error;
  double started = 0, first = 0, last = 0;
  std::vector<double> gaps;
  int64_t prompt_tokens = 0, output_tokens = 0;
};

// Common English words are one token each in the vocabularies of published models, and of ours, so lengths come out close.
std::string random_prompt(Rng& rng, int tokens) {
  const auto words = model::common_words();
  std::string s;
  for (int i = 0; i < tokens; ++i) {
    if (i) s += ' ';
    s += words[rng.below(uint32_t(words.size()))];
  }
  return s;
}

Outcome send_one(http::Client& client, const GeneratorOptions& o, const std::string& model, const Arrival& p, uint64_t index) {
  Rng rng(o.seed, index + 1);
  Json body{{"model", model}, {"prompt", random_prompt(rng, p.prompt_tokens)}, {"max_tokens", p.output_tokens}, {"temperature", 0},
            {"ignore_eos", true}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  if (!o.service_tier.empty()) body["service_tier"] = o.service_tier;
  http::Headers headers{{"Content-Type", "application/json"}};
  if (!o.api_key.empty()) headers.emplace_back("Authorization", "Bearer " + o.api_key);
  Outcome r;
  int events = 0;
  http::SseSplitter sse([&](std::string_view data) {
    if (data == "[DONE]") return;
    const Json j = Json::parse(data, nullptr, false);
    if (j.is_discarded()) {
      r.error = "an event is no JSON";
      return;
    }
    if (j.contains("error") && !j["error"].is_null()) r.error = j["error"].dump();
    if (j.contains("usage") && j["usage"].is_object()) {
      r.prompt_tokens = j["usage"].value("prompt_tokens", int64_t{0});
      r.output_tokens = j["usage"].value("completion_tokens", int64_t{0});
    }
    if (!j.contains("choices") || j["choices"].empty()) return;
    const double now = seconds();
    if (events++ == 0) r.first = now;
    else r.gaps.push_back(now - r.last);
    r.last = now;
  });
  r.started = seconds();
  auto response = client.post_json("/v1/completions", body.dump(), headers, [&](std::string_view bytes) {
    sse.push(bytes);
    return true;
  });
  if (!response.ok()) {
    r.error = response.error().message;
    return r;
  }
  r.status = response->status;
  if (r.status != 200) r.error = "HTTP " + std::to_string(r.status) + ": " + response->body.substr(0, 200);
  else if (events == 0) r.error = "no token came";
  if (r.output_tokens == 0) r.output_tokens = events;
  return r;
}

LoadReport summarise(const GeneratorOptions& o, const std::vector<Outcome>& outcomes, double duration) {
  LoadTally tally(o.slo_ttft_ms, o.slo_tpot_ms);
  std::vector<double> gaps;
  for (const Outcome& x : outcomes) {
    if (!x.error.empty()) continue;
    tally.add(x.first - x.started, x.last - x.started, x.prompt_tokens, x.output_tokens);
    gaps.insert(gaps.end(), x.gaps.begin(), x.gaps.end());
  }
  LoadReport r = tally.report(duration);
  r.requests = int(outcomes.size());
  r.itl_ms = percentiles_ms(std::move(gaps));
  for (const Outcome& x : outcomes) {
    if (x.error.empty()) continue;
    ++(x.status == 429 ? r.rejected : r.failed);
    if (r.first_error.empty()) r.first_error = x.error;
  }
  return r;
}

}  // namespace

Status parse_slo(const std::string& text, double& ttft_ms, double& tpot_ms) {
  std::stringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    double v = 0;
    if (std::sscanf(part.c_str(), "ttft_ms=%lf", &v) == 1 && v > 0) ttft_ms = v;
    else if (std::sscanf(part.c_str(), "tpot_ms=%lf", &v) == 1 && v > 0) tpot_ms = v;
    else return invalid("'" + part + "' is not ttft_ms=N or tpot_ms=N", "--slo");
  }
  return {};
}

Result<LoadReport> generate_load(const GeneratorOptions& o, const std::function<void(int, int)>& progress) {
  if (o.concurrency < 1 || o.concurrency > 4096) return invalid(std::to_string(o.concurrency) + " is outside 1..4096", "--concurrency");
  SLUICE_ASSIGN(http::Url url, http::parse_url(o.url));
  SLUICE_ASSIGN(std::vector<Arrival> plan, plan_workload(o));
  std::string model = o.model;
  if (model.empty()) {
    http::Client client(url.host, url.port);
    http::Headers headers;
    if (!o.api_key.empty()) headers.emplace_back("Authorization", "Bearer " + o.api_key);
    SLUICE_ASSIGN(http::Response list, client.get("/v1/models", headers));
    const Json j = Json::parse(list.body, nullptr, false);
    if (j.is_discarded() || !j.contains("data") || !j["data"].is_array() || j["data"].empty() || !j["data"][0].contains("id"))
      return Error{ErrorCode::kIo, o.url + ": /v1/models names no model", {}};
    model = j["data"][0].value("id", "");
  }
  std::vector<Outcome> outcomes(plan.size());
  std::atomic<size_t> next{0};
  std::atomic<int> done{0};
  std::mutex progress_mutex;
  const double begin = seconds();
  std::vector<std::thread> workers;
  for (int w = 0; w < std::min<int>(o.concurrency, int(plan.size())); ++w)
    workers.emplace_back([&] {
      http::Client client(url.host, url.port);
      for (size_t i; (i = next.fetch_add(1)) < plan.size();) {
        const double wait = begin + plan[i].at_s - seconds();
        if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
        outcomes[i] = send_one(client, o, model, plan[i], i);
        const int n = ++done;
        if (progress) {
          std::lock_guard lock(progress_mutex);
          progress(n, int(plan.size()));
        }
      }
    });
  for (auto& w : workers) w.join();
  return summarise(o, outcomes, seconds() - begin);
}

}  // namespace sluice::lab
