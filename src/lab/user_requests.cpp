#include "lab/user_requests.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "lab/prompt_line.h"
#include "lab/workload.h"

namespace sluice::lab {
namespace {

using Json = nlohmann::ordered_json;

class Reader {
 public:
  Reader(const UserRequestOptions& o, const LoadedModel& m, Distribution output) : o_(o), m_(m), output_(output), rng_(o.seed) {}

  Result<std::vector<UserRequest>> read() {
    if (o_.path.ends_with(".csv")) return trace();
    const bool lines = o_.path.ends_with(".jsonl");
    if (!lines && !o_.path.ends_with(".txt")) return invalid("'" + o_.path + "' is neither .txt, .jsonl nor .csv", "--data");
    std::ifstream in(o_.path, std::ios::binary);
    if (!in) return Error{ErrorCode::kNotFound, o_.path + ": cannot be read", "--data"};
    std::string line, paragraph;
    for (number_ = 1; int(out_.size()) < o_.limit && std::getline(in, line); ++number_) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (lines) {
        if (!line.empty()) SLUICE_TRY(take_json(line));
      } else if (!line.empty()) {
        paragraph += (paragraph.empty() ? "" : "\n") + line;
      } else {
        SLUICE_TRY(take_text(paragraph, output_.draw(rng_), false));
        paragraph.clear();
      }
    }
    SLUICE_TRY(take_text(paragraph, output_.draw(rng_), false));
    if (out_.empty()) return bad_file(o_.path + ": holds no prompt");
    return std::move(out_);
  }

 private:
  std::string where() const { return o_.path + ": line " + std::to_string(number_); }

  Status take_json(const std::string& line) {
    const Json whole = Json::parse(line, nullptr, false);
    if (!whole.is_object()) return bad_file(where() + " is no JSON object");
    const Json& j = request_of(whole);
    int output = output_.draw(rng_);
    if (j.contains("max_tokens")) {
      if (!j["max_tokens"].is_number_integer() || j["max_tokens"] < 1 || j["max_tokens"] > (1 << 24)) return bad_file(where() + ": max_tokens is no number from 1 to 16777216");
      output = j["max_tokens"].get<int>();
    }
    const bool batch = j.contains("service_tier") && j["service_tier"] == "flex";
    SLUICE_ASSIGN(PromptLine prompt, read_prompt(j, m_, where()));
    const bool silent = prompt.tokens.empty() && j.contains("prompt");  // an empty text is no request
    return silent ? Status{} : take(std::move(prompt.tokens), output, batch);
  }

  Status take_text(const std::string& text, int output, bool batch) {
    if (text.empty()) return {};
    return take(m_.tokenizer->encode(text, {.parse_special = false, .add_bos = true}), output, batch);
  }

  Status take(std::vector<int32_t> ids, int output, bool batch) {
    if (ids.empty()) return bad_file(where() + ": a prompt without a token");
    if (Status s = sched::Scheduler::fits(m_.scheduler, int64_t(ids.size()), output); !s.ok()) return Error{s.error().code, where() + ": " + s.error().message, "--data"};
    out_.push_back({std::move(ids), output, 0, batch});
    return {};
  }

  Result<std::vector<UserRequest>> trace() {
    WorkloadOptions w;
    w.trace = o_.path;
    w.divide_lengths = o_.divide_lengths;
    w.requests = o_.limit;
    w.seed = o_.seed;
    SLUICE_ASSIGN(const std::vector<Arrival> arrivals, plan_workload(w));
    if (arrivals.empty()) return bad_file(o_.path + ": holds no request");
    for (const Arrival& a : arrivals) {
      number_ = int(out_.size()) + 2;
      std::vector<int32_t> ids(static_cast<size_t>(a.prompt_tokens));
      for (int32_t& t : ids) t = int32_t(rng_.below(uint32_t(m_.scheduler.vocab)));
      SLUICE_TRY(take(std::move(ids), a.output_tokens, false));
      out_.back().at_s = a.at_s;
    }
    return std::move(out_);
  }

  const UserRequestOptions& o_;
  const LoadedModel& m_;
  Distribution output_;
  Rng rng_;
  int number_ = 0;  // of the line in hand
  std::vector<UserRequest> out_;
};

}  // namespace

Result<std::vector<UserRequest>> read_user_requests(const UserRequestOptions& o, const LoadedModel& m) {
  if (o.divide_lengths < 1) return invalid("must be at least 1", "--divide-lengths");
  if (o.limit < 1) return invalid("must be at least 1", "--requests");
  SLUICE_ASSIGN(const Distribution output, Distribution::parse(o.output_tokens, "--output-tokens"));
  return Reader(o, m, output).read();
}

}  // namespace sluice::lab
