#include "engine/recorder.h"

#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>

namespace sluice::engine {

using Json = nlohmann::ordered_json;

Result<std::unique_ptr<Recorder>> Recorder::open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) return Error{ErrorCode::kIo, path + ": " + std::strerror(errno), "--record"};
  return std::unique_ptr<Recorder>(new Recorder(file));
}

Recorder::~Recorder() {
  if (file_) std::fclose(file_);
}

void Recorder::line(const std::string& text) {
  if (!file_) return;
  if (std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fputc('\n', file_) != EOF) return;
  std::fprintf(stderr, "the recording ends here: %s\n", std::strerror(errno));
  std::fclose(file_);
  file_ = nullptr;
}

void Recorder::flush() {
  if (file_) std::fflush(file_);
}

void Recorder::begin(const sched::SchedulerOptions& o, const std::vector<double>& step_cost) {
  line(Json{{"recording", kVersion},
            {"options", {{"total_blocks", o.total_blocks}, {"block_tokens", o.block_tokens}, {"group_tokens", o.group_tokens}, {"max_sequences", o.max_sequences}, {"max_step_tokens", o.max_step_tokens}, {"tile_tokens", o.tile_tokens},
                         {"step_us", o.step_us}, {"prompt_room", o.prompt_room}, {"prompt_us", o.prompt_us}, {"batch_room", o.batch_room}, {"max_context", o.max_context}, {"swap_blocks", o.swap_blocks}, {"swap_block_us", o.swap_block_us}, {"vocab", o.vocab}, {"prefix_cache", o.prefix_cache}}},
            {"step_cost", step_cost}}.dump());
}

void Recorder::submission(const sched::Submission& s, const std::vector<int32_t>& end_tokens) {
  std::vector<int32_t> stops = s.stop_token_ids;
  if (!s.ignore_eos) stops.insert(stops.end(), end_tokens.begin(), end_tokens.end());
  Json j{{"id", s.id}, {"arrived_us", s.arrived_us}, {"prompt", s.prompt}, {"max_tokens", s.max_tokens}, {"min_tokens", s.min_tokens}, {"n", s.n},
         {"stop_tokens", stops}, {"batch", s.request_class == sched::RequestClass::kBatch}, {"cache_salt", s.cache_salt}, {"share_key", s.share_key}, {"share_weight", s.share_weight},
         {"prompt_logprobs", s.prompt_logprobs}, {"ttft_target_us", s.ttft_target_us}, {"tpot_target_us", s.tpot_target_us},
         // Of sampling, what decides whether a step may be planned before the one ahead has drawn.
         {"penalties", {s.sampling.repetition_penalty, s.sampling.presence_penalty, s.sampling.frequency_penalty}}};
  if (!s.stop.empty()) j["stop"] = s.stop;
  if (s.include_stop) j["include_stop"] = true;
  if (s.keep_special) j["keep_special"] = true;
  // Prompts and stop strings may hold any bytes.
  line(Json{{"submit", std::move(j)}}.dump(-1, ' ', true, Json::error_handler_t::replace));
}

void Recorder::cancelled(TimeUs now, const std::vector<uint64_t>& ids) { line(Json{{"cancel", {{"now", now}, {"ids", ids}}}}.dump()); }

void Recorder::drafts(const std::vector<draft::Given>& given) {
  if (given.empty()) return;
  Json list = Json::array();
  for (const draft::Given& g : given) list.push_back({g.slot, g.waits, g.tokens});
  line(Json{{"drafts", std::move(list)}}.dump());
}

void Recorder::planned(TimeUs now, uint64_t hash) { line(Json{{"plan", {{"now", now}, {"hash", hash}}}}.dump()); }

void Recorder::committed(TimeUs now, TimeUs took_us, const sched::StepResult& result) {
  std::vector<int32_t> tokens;
  for (const sample::SampledToken& t : result.rows) tokens.push_back(t.token);
  line(Json{{"commit", {{"now", now}, {"took_us", took_us}, {"tokens", tokens}}}}.dump());
}

}  // namespace sluice::engine
