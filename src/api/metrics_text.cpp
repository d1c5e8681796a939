#include "api/metrics_text.h"

#include <charconv>
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

// Writes families under a list of names, each with its own labels.
class Writer {
 public:
  struct Name {
    std::string text;
    std::string labels;   // without braces
  };
  explicit Writer(const std::string& model)
      : own_("model=\"" + label_value(model) + "\""), vllm_("model_name=\"" + label_value(model) + "\",engine=\"0\"") {}

  // "sluice_x" alone, or with a vllm alias.
  std::vector<Name> names(const std::string& own, const std::string& vllm) const {
    std::vector<Name> out;
    if (!own.empty()) out.push_back({"sluice_" + own, own_});
    if (!vllm.empty()) out.push_back({"vllm:" + vllm, vllm_});
    return out;
  }
  void gauge(const char* help, const std::string& own, const std::string& vllm, double v) {
    for (const Name& n : names(own, vllm)) single(n, help, "gauge", v);
  }
  void counter(const char* help, const std::string& own, const std::string& vllm, double v) {
    for (const Name& n : names(own, vllm)) single(n, help, "counter", v);
  }
  void histogram(const char* help, const std::string& own, const std::string& vllm, const engine::Histogram& h) {
    for (const Name& n : names(own, vllm)) {
      family(n.text, help, "histogram");
      uint64_t total = 0;  // summed here: the buckets then agree with the count however writers interleave
      for (size_t i = 0; i <= h.bounds().size(); ++i) {
        total += h.bucket(i);
        const std::string le = i < h.bounds().size() ? number(h.bounds()[i]) : "+Inf";
        sample(n.text + "_bucket", n.labels + ",le=\"" + le + "\"", double(total));
      }
      sample(n.text + "_sum", n.labels, h.sum());
      sample(n.text + "_count", n.labels, double(total));
    }
  }
  // One counter by a label's values.
  void by_label(const char* help, const std::string& own, const std::string& vllm, const char* label,
                const std::vector<std::pair<const char*, uint64_t>>& values) {
    for (const Name& n : names(own, vllm)) {
      family(n.text, help, "counter");
      for (const auto& [value, v] : values) sample(n.text, n.labels + "," + label + "=\"" + value + "\"", double(v));
    }
  }
  // One counter by several labels.
  struct Labelled { std::string labels; double value; };
  void labelled(const char* help, const std::string& name, const std::vector<Labelled>& values) {
    family("sluice_" + name, help, "counter");
    for (const Labelled& v : values) sample("sluice_" + name, own_ + "," + v.labels, v.value);
  }
  std::string take() { return std::move(out_); }

 private:
  void family(const std::string& name, const char* help, const char* type) {
    out_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void sample(const std::string& name, const std::string& labels, double v) {
    out_ += name + "{" + labels + "} " + number(v) + "\n";
  }
  void single(const Name& n, const char* help, const char* type, double v) {
    family(n.text, help, type);
    sample(n.text, n.labels, v);
  }

  std::string out_, own_, vllm_;
};

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

void write_gauges(Writer& w, const Context& context, const engine::Stats& s) {
  const double total = double(s.blocks_total.load()), free = double(s.blocks_free.load()), cached = double(s.blocks_cached.load());
  w.gauge("Sequences that are running.", "requests_running", "num_requests_running", double(s.running.load()));
  w.gauge("Requests that wait.", "requests_waiting", "num_requests_waiting", double(s.waiting.load()));
  w.gauge("Requests over HTTP that are not answered yet.", "http_requests_in_flight", "", double(context.in_flight.load()));
  w.gauge("Cache blocks in all.", "kv_blocks", "", total);
  w.gauge("Cache blocks that are free.", "kv_blocks_free", "", free);
  w.gauge("Cache blocks held by sequences.", "kv_blocks_held", "", double(s.blocks_held.load()));
  w.gauge("Cache blocks kept for their prefixes and free to reuse.", "kv_blocks_cached", "", cached);
  const double used = ratio(double(s.blocks_held.load()), total);
  w.gauge("Share of the cache held by sequences, 0 to 1.", "kv_usage_ratio", "kv_cache_usage_perc", used);
  w.gauge("Share of the cache held by sequences, 0 to 1 (old name).", "", "gpu_cache_usage_perc", used);
  w.gauge("Share of prompt tokens found in the prefix cache.", "", "gpu_prefix_cache_hit_rate",
          ratio(double(s.prefix_hit_tokens.load()), double(s.prefix_query_tokens.load())));
  w.gauge("Error of predicted step times, 90th percentile of recent steps, relative.", "step_prediction_error_p90", "", s.step_error_p90.load());
  w.gauge("Largest number of allocated and unused cache slots a sequence.", "kv_max_waste_tokens_per_sequence", "",
          double(s.max_waste_tokens_per_sequence.load()));
  std::string reason;
  w.gauge("1 while the engine is healthy and takes requests.", "healthy", "",
          !context.draining.load() && context.engine->healthy(reason) ? 1 : 0);
}

void write_counters(Writer& w, const engine::Stats& s) {
  w.counter("Prompt tokens.", "prompt_tokens_total", "prompt_tokens_total", double(s.prompt_tokens.load()));
  w.counter("Generated tokens.", "generated_tokens_total", "generation_tokens_total", double(s.generated_tokens.load()));
  const double queries = double(s.prefix_query_tokens.load()), hits = double(s.prefix_hit_tokens.load());
  w.counter("Prompt tokens looked up in the prefix cache.", "prefix_query_tokens_total", "prefix_cache_queries_total", queries);
  w.counter("Prompt tokens found in the prefix cache.", "prefix_hit_tokens_total", "prefix_cache_hits_total", hits);
  w.counter("Prompt tokens looked up in the prefix cache (old name).", "", "gpu_prefix_cache_queries_total", queries);
  w.counter("Prompt tokens found in the prefix cache (old name).", "", "gpu_prefix_cache_hits_total", hits);
  w.counter("Sequences preempted.", "preemptions_total", "num_preemptions_total", double(s.preemptions.load()));
  w.counter("Engine steps.", "steps_total", "", double(s.steps.load()));
  w.counter("Requests refused at once.", "requests_rejected_total", "", double(s.rejected.load()));
  w.counter("Cache slots allocated, summed over steps.", "kv_allocated_slot_steps_total", "", double(s.allocated_slot_steps.load()));
  w.counter("Cache slots that held a token, summed over steps.", "kv_live_token_steps_total", "", double(s.live_token_steps.load()));
  w.by_label("Finished sequences by reason.", "requests_finished_total", "request_success_total", "finished_reason",
             {{"stop", s.finished_stop.load()}, {"length", s.finished_length.load()},
              {"abort", s.finished_cancelled.load()}, {"error", s.finished_error.load()}});
}

// By proposer, class and place in the draft; places that were never verified are left out.
void write_drafts(Writer& w, const draft::DraftCounters& c) {
  std::vector<Writer::Labelled> drafted, tried, accepted;
  double all_drafted = 0, all_accepted = 0;
  for (size_t s = 0; s < draft::kNumSources; ++s)
    for (size_t cls = 0; cls < 2; ++cls) {
      const std::string by = std::string("proposer=\"") + draft::kSourceNames[s] + "\",class=\"" + (cls == 0 ? "interactive" : "batch") + "\"";
      drafted.push_back({by, double(c.drafted[s][cls].load())});
      all_drafted += drafted.back().value;
      for (size_t j = 0; j < sched::kMaxDrafts && (j == 0 || c.tried[s][cls][j].load() > 0); ++j) {
        const std::string at = by + ",position=\"" + std::to_string(j) + "\"";
        tried.push_back({at, double(c.tried[s][cls][j].load())});
        accepted.push_back({at, double(c.accepted[s][cls][j].load())});
        all_accepted += accepted.back().value;
      }
    }
  w.labelled("Draft tokens verified.", "drafted_tokens_total", drafted);
  w.labelled("Draft tokens verified that no rejected one stands before: accepted over these is the acceptance.", "draft_tried_tokens_total", tried);
  w.labelled("Draft tokens accepted.", "draft_accepted_tokens_total", accepted);
  w.counter("Draft tokens verified.", "", "spec_decode_num_draft_tokens_total", all_drafted);
  w.counter("Draft tokens accepted.", "", "spec_decode_num_accepted_tokens_total", all_accepted);
  w.counter("Passes of the draft model.", "draft_passes_total", "", double(c.passes.load()));
  w.counter("Tokens computed by the draft model.", "draft_pass_tokens_total", "", double(c.pass_tokens.load()));
  w.counter("Time in the draft model.", "draft_pass_seconds_total", "", double(c.pass_us.load()) * 1e-6);
}

}  // namespace

std::string metrics_text(const Context& context) {
  const engine::Stats& s = context.engine->stats();
  Writer w(context.model.id);
  write_gauges(w, context, s);
  write_counters(w, s);
  if (s.drafts) write_drafts(w, *s.drafts);
  w.histogram("Arrival to first token.", "time_to_first_token_seconds", "time_to_first_token_seconds", s.time_to_first_token);
  w.histogram("Between a sequence's tokens.", "time_per_output_token_seconds", "inter_token_latency_seconds", s.time_per_output_token);
  w.histogram("Between a sequence's tokens (old name).", "", "time_per_output_token_seconds", s.time_per_output_token);
  w.histogram("Arrival to last token.", "request_seconds", "e2e_request_latency_seconds", s.end_to_end);
  w.histogram("Arrival to first being scheduled.", "request_queue_seconds", "request_queue_time_seconds", s.queue_time);
  return w.take();
}

}  // namespace sluice::api
