#include "api/metrics_text.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <span>
#include <vector>

namespace sluice::api {
namespace {

std::string number(double v) {
  char text[32];
  const auto [end, ec] = std::to_chars(text, text + sizeof text, v);
  return std::string(text, end);
}

// A label's value: backslash, quote and newline are escaped (exposition format).
std::string label_value(const std::string& s) {
  std::string out;
  for (const char c : s) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

using Value = std::function<double(const engine::Stats&)>;
using ByLabel = std::vector<std::pair<const char*, std::atomic<uint64_t> engine::Stats::*>>;

// Writes families, each under one name or two - Sluice's own, and the alias that routers know - with a sample a pool.
class Writer {
 public:
  Writer(const std::string& model, std::span<const Pool> pools) : model_(label_value(model)), pools_(pools) {}

  // An empty name is left out.
  void gauge(const char* help, const std::string& own, const std::string& vllm, const Value& v) { single(help, "gauge", own, vllm, v); }
  void counter(const char* help, const std::string& own, const std::string& vllm, const Value& v) { single(help, "counter", own, vllm, v); }
  void histogram(const char* help, const std::string& own, const std::string& vllm, engine::Histogram engine::Stats::*member) {
    each(help, "histogram", own, vllm, [&](const std::string& name, const std::string& labels, const engine::Stats& stats) {
      const engine::Histogram& h = stats.*member;
      uint64_t total = 0;  // summed here: the buckets then agree with the count however writers interleave
      for (size_t i = 0; i <= h.bounds().size(); ++i) {
        total += h.bucket(i);
        const std::string le = i < h.bounds().size() ? number(h.bounds()[i]) : "+Inf";
        sample(name + "_bucket", labels + ",le=\"" + le + "\"", double(total));
      }
      sample(name + "_sum", labels, h.sum());
      sample(name + "_count", labels, double(total));
    });
  }
  // One counter by a label's values.
  void by_label(const char* help, const std::string& own, const std::string& vllm, const char* label, const ByLabel& values) {
    each(help, "counter", own, vllm, [&](const std::string& name, const std::string& labels, const engine::Stats& stats) {
      for (const auto& [value, member] : values) sample(name, labels + "," + label + "=\"" + value + "\"", double((stats.*member).load()));
    });
  }
  // Of the server, not of a pool.
  void of_server(const char* help, const std::string& own, double v) {
    family("sluice_" + own, help, "gauge");
    sample("sluice_" + own, "model=\"" + model_ + "\"", v);
  }
  // One counter by several labels, of pools that speculate.
  using Emit = std::function<void(const std::string& labels, double value)>;
  void labelled(const char* help, const std::string& own, const std::function<void(const draft::DraftCounters&, const Emit&)>& values) {
    each(help, "counter", own, "", [&](const std::string& name, const std::string& labels, const engine::Stats& stats) {
      if (stats.drafts) values(*stats.drafts, [&](const std::string& more, double v) { sample(name, labels + "," + more, v); });
    });
  }
  std::string take() { return std::move(out_); }

 private:
  template <class Write>
  void each(const char* help, const char* type, const std::string& own, const std::string& vllm, Write write) {
    if (!own.empty()) {
      family("sluice_" + own, help, type);
      for (const Pool& p : pools_) write("sluice_" + own, "model=\"" + model_ + "\",pool=\"" + label_value(p.name) + "\"", p.engine->stats());
    }
    if (vllm.empty()) return;
    family("vllm:" + vllm, help, type);
    for (size_t i = 0; i < pools_.size(); ++i)
      write("vllm:" + vllm, "model_name=\"" + model_ + "\",engine=\"" + std::to_string(i) + "\"", pools_[i].engine->stats());
  }
  void single(const char* help, const char* type, const std::string& own, const std::string& vllm, const Value& v) {
    each(help, type, own, vllm, [&](const std::string& name, const std::string& labels, const engine::Stats& stats) { sample(name, labels, v(stats)); });
  }
  void family(const std::string& name, const char* help, const char* type) {
    out_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void sample(const std::string& name, const std::string& labels, double v) { out_ += name + "{" + labels + "} " + number(v) + "\n"; }

  std::string out_, model_;
  std::span<const Pool> pools_;
};

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

template <class T>
Value of(std::atomic<T> engine::Stats::*member) {
  return [member](const engine::Stats& s) { return double((s.*member).load()); };
}
Value ratio_of(auto engine::Stats::*a, auto engine::Stats::*b) {
  return [a, b](const engine::Stats& s) { return ratio(double((s.*a).load()), double((s.*b).load())); };
}

using S = engine::Stats;

void write_gauges(Writer& w) {
  w.gauge("Sequences that are running.", "requests_running", "num_requests_running", of(&S::running));
  w.gauge("Requests that wait.", "requests_waiting", "num_requests_waiting", of(&S::waiting));
  w.gauge("Prompt tokens of requests that wait.", "waiting_prompt_tokens", "", of(&S::waiting_tokens));
  w.gauge("Requests that leave the queue a second, lately.", "queue_drain_per_second", "", of(&S::drain_per_s));
  w.gauge("Cache blocks in all.", "kv_blocks", "", of(&S::blocks_total));
  w.gauge("Cache blocks that are free.", "kv_blocks_free", "", of(&S::blocks_free));
  w.gauge("Cache blocks held by sequences.", "kv_blocks_held", "", of(&S::blocks_held));
  w.gauge("Cache blocks kept for their prefixes and free to reuse.", "kv_blocks_cached", "", of(&S::blocks_cached));
  w.gauge("Bytes of cache that a token's keys take, in all layers.", "kv_key_bytes_per_token", "", of(&S::kv_key_bytes));
  w.gauge("Bytes of cache that a token's values take, in all layers.", "kv_value_bytes_per_token", "", of(&S::kv_value_bytes));
  w.gauge("Bytes of cache that the scales of a token's keys and values take, in all layers.", "kv_scale_bytes_per_token", "", of(&S::kv_scale_bytes));
  const Value used = ratio_of(&S::blocks_held, &S::blocks_total);
  w.gauge("Share of the cache held by sequences, 0 to 1.", "kv_usage_ratio", "kv_cache_usage_perc", used);
  w.gauge("Share of the cache held by sequences, 0 to 1 (old name).", "", "gpu_cache_usage_perc", used);
  w.gauge("Share of prompt tokens found in the prefix cache.", "", "gpu_prefix_cache_hit_rate", ratio_of(&S::prefix_hit_tokens, &S::prefix_query_tokens));
  w.gauge("Error of predicted step times, 90th percentile of recent steps, relative.", "step_prediction_error_p90", "", of(&S::step_error_p90));
  w.gauge("Largest number of allocated and unused cache slots a sequence.", "kv_max_waste_tokens_per_sequence", "", of(&S::max_waste_tokens_per_sequence));
}

void write_server(Writer& w, const Context& context) {
  w.of_server("Requests over HTTP that are not answered yet.", "http_requests_in_flight", double(context.in_flight.load()));
  std::string reason;
  bool healthy = !context.draining.load();
  for (const Pool& p : context.pools) healthy = healthy && p.engine->healthy(reason);
  w.of_server("1 while every engine is healthy and takes requests.", "healthy", healthy ? 1 : 0);
}

void write_counters(Writer& w) {
  w.counter("Prompt tokens.", "prompt_tokens_total", "prompt_tokens_total", of(&S::prompt_tokens));
  w.counter("Generated tokens.", "generated_tokens_total", "generation_tokens_total", of(&S::generated_tokens));
  w.counter("Prompt tokens looked up in the prefix cache.", "prefix_query_tokens_total", "prefix_cache_queries_total", of(&S::prefix_query_tokens));
  w.counter("Prompt tokens found in the prefix cache.", "prefix_hit_tokens_total", "prefix_cache_hits_total", of(&S::prefix_hit_tokens));
  w.counter("Prompt tokens looked up in the prefix cache (old name).", "", "gpu_prefix_cache_queries_total", of(&S::prefix_query_tokens));
  w.counter("Prompt tokens found in the prefix cache (old name).", "", "gpu_prefix_cache_hits_total", of(&S::prefix_hit_tokens));
  w.counter("Sequences preempted.", "preemptions_total", "num_preemptions_total", of(&S::preemptions));
  w.counter("Preempted sequences whose blocks were kept aside.", "swaps_total", "", of(&S::swaps));
  w.counter("Engine steps.", "steps_total", "", of(&S::steps));
  w.counter("Requests refused at once.", "requests_rejected_total", "", of(&S::rejected));
  w.counter("Requests that waited longer than they may.", "requests_expired_total", "", of(&S::expired));
  w.counter("Cache slots allocated, summed over steps.", "kv_allocated_slot_steps_total", "", of(&S::allocated_slot_steps));
  w.counter("Cache slots that held a token, summed over steps.", "kv_live_token_steps_total", "", of(&S::live_token_steps));
  w.by_label("Finished sequences by reason.", "requests_finished_total", "request_success_total", "finished_reason",
             {{"stop", &S::finished_stop}, {"length", &S::finished_length}, {"abort", &S::finished_cancelled}, {"error", &S::finished_error}});
  w.by_label("Finished sequences with targets, by whether all were met.", "targets_total", "", "met", {{"true", &S::targets_met}, {"false", &S::targets_missed}});
  w.by_label("Targets that were missed.", "targets_missed_total", "", "target", {{"ttft", &S::ttft_missed}, {"tpot", &S::tpot_missed}});
}

std::string proposer_labels(size_t source, size_t cls) {
  return std::string("proposer=\"") + draft::kSourceNames[source] + "\",class=\"" + (cls == 0 ? "interactive" : "batch") + "\"";
}

// By place in the draft; places that were never verified are left out.
auto by_place(draft::DraftCounters::Cells draft::DraftCounters::*member) {
  return [member](const draft::DraftCounters& c, const Writer::Emit& emit) {
    for (size_t s = 0; s < draft::kNumSources; ++s)
      for (size_t cls = 0; cls < 2; ++cls)
        for (size_t j = 0; j < sched::kMaxDrafts && (j == 0 || c.tried[s][cls][j].load() > 0); ++j)
          emit(proposer_labels(s, cls) + ",position=\"" + std::to_string(j) + "\"", double((c.*member)[s][cls][j].load()));
  };
}

// Of all proposers and classes; 0 where there is no speculation.
Value all_drafts(double (*of)(const draft::DraftCounters&)) {
  return [of](const engine::Stats& s) { return s.drafts ? of(*s.drafts) : 0; };
}
double drafted_of(const draft::DraftCounters& c) {
  double sum = 0;
  for (const auto& by_class : c.drafted)
    for (const auto& n : by_class) sum += double(n.load());
  return sum;
}
double accepted_of(const draft::DraftCounters& c) {
  double sum = 0;
  for (const auto& by_class : c.accepted)
    for (const auto& by_position : by_class)
      for (const auto& n : by_position) sum += double(n.load());
  return sum;
}

void write_drafts(Writer& w, std::span<const Pool> pools) {
  if (std::none_of(pools.begin(), pools.end(), [](const Pool& p) { return p.engine->stats().drafts; })) return;
  using C = draft::DraftCounters;
  w.labelled("Draft tokens verified.", "drafted_tokens_total", [](const C& c, const Writer::Emit& emit) {
    for (size_t s = 0; s < draft::kNumSources; ++s)
      for (size_t cls = 0; cls < 2; ++cls) emit(proposer_labels(s, cls), double(c.drafted[s][cls].load()));
  });
  w.labelled("Draft tokens verified before which none was rejected: accepted over these is the acceptance.", "draft_tried_tokens_total", by_place(&C::tried));
  w.labelled("Draft tokens accepted.", "draft_accepted_tokens_total", by_place(&C::accepted));
  w.counter("Draft tokens verified (all proposers).", "", "spec_decode_num_draft_tokens_total", all_drafts(drafted_of));
  w.counter("Draft tokens accepted (all proposers).", "", "spec_decode_num_accepted_tokens_total", all_drafts(accepted_of));
  w.counter("Passes of the draft model.", "draft_passes_total", "", all_drafts([](const C& c) { return double(c.passes.load()); }));
  w.counter("Tokens computed by the draft model.", "draft_pass_tokens_total", "", all_drafts([](const C& c) { return double(c.pass_tokens.load()); }));
  w.counter("Time in the draft model.", "draft_pass_seconds_total", "", all_drafts([](const C& c) { return double(c.pass_us.load()) * 1e-6; }));
}

}  // namespace

std::string metrics_text(const Context& context) {
  Writer w(context.model.id, context.pools);
  write_server(w, context);
  write_gauges(w);
  write_counters(w);
  write_drafts(w, context.pools);
  w.histogram("Arrival to first token.", "time_to_first_token_seconds", "time_to_first_token_seconds", &S::time_to_first_token);
  w.histogram("Between a sequence's tokens.", "time_per_output_token_seconds", "inter_token_latency_seconds", &S::time_per_output_token);
  w.histogram("Between a sequence's tokens (old name).", "", "time_per_output_token_seconds", &S::time_per_output_token);
  w.histogram("Arrival to last token.", "request_seconds", "e2e_request_latency_seconds", &S::end_to_end);
  w.histogram("Arrival to first being scheduled.", "request_queue_seconds", "request_queue_time_seconds", &S::queue_time);
  return w.take();
}

}  // namespace sluice::api
