#include "lab/load_tally.h"


namespace sluice::lab {

void LoadTally::add(double first_s, double last_s, int64_t prompt_tokens, int64_t output_tokens) {
  prompt_tokens_ += prompt_tokens;
  output_tokens_ += output_tokens;
  ttft_.push_back(first_s);
  e2e_.push_back(last_s);
  const double per_token = output_tokens > 1 ? (last_s - first_s) / double(output_tokens - 1) : 0;
  if (output_tokens > 1) tpot_.push_back(per_token);
  good_ += (slo_ttft_ms_ <= 0 || first_s * 1e3 <= slo_ttft_ms_) && (slo_tpot_ms_ <= 0 || per_token * 1e3 <= slo_tpot_ms_);
}

void LoadTally::add(const LoadTally& o) {
  for (const auto& [to, from] : {std::pair{&ttft_, &o.ttft_}, {&tpot_, &o.tpot_}, {&e2e_, &o.e2e_}}) to->insert(to->end(), from->begin(), from->end());
  prompt_tokens_ += o.prompt_tokens_;
  output_tokens_ += o.output_tokens_;
  good_ += o.good_;
}

LoadReport LoadTally::report(double duration_s) const {
  LoadReport r;
  r.requests = r.ok = ok();
  r.duration_s = duration_s;
  r.prompt_tokens = prompt_tokens_;
  r.output_tokens = output_tokens_;
  if (duration_s > 0) {
    r.output_tok_s = double(output_tokens_) / duration_s;
    r.total_tok_s = double(output_tokens_ + prompt_tokens_) / duration_s;
    r.goodput_rps = good_ / duration_s;
  }
  r.ttft_ms = percentiles_ms(ttft_);
  r.tpot_ms = percentiles_ms(tpot_);
  r.e2e_ms = percentiles_ms(e2e_);
  return r;
}

}  // namespace sluice::lab
