#include "api/generation.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "api/fields.h"

namespace sluice::api {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr int64_t kMaxChoices = 128;

// Fields that change what is generated and that nothing here can honour: refused, since ignoring them would give an answer
// to another question. Everything else that is unknown is ignored, as clients send each other's extensions.
constexpr const char* kUnsupported[] = {"structured_outputs", "guided_json",       "guided_regex", "guided_choice",
                                        "guided_grammar",     "grammar",           "json_schema",  "logits_processors",
                                        "bad_words",          "allowed_token_ids", "chat_template", "functions"};

bool empty_value(const Json& v) {
  return v.is_null() || ((v.is_array() || v.is_object()) && v.empty()) || (v.is_string() && v.get_ref<const std::string&>().empty());
}

uint64_t fresh_seed() {
  thread_local std::mt19937_64 rng{std::random_device{}() ^ (uint64_t{std::random_device{}()} << 32)};
  return rng();
}

// Two salts share cache entries only if they are equal or collide in 64 bits; 0 is left for "no salt".
uint64_t salt_of(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ uint8_t(c)) * 0x100000001b3u;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  return h ? h : 1;
}

void read_stop(Fields& f, sched::Submission& s) {
  const Json* v = f.find("stop");
  if (!v) return;
  const auto add = [&](const Json& one) {
    if (!one.is_string()) return f.fail("stop", "must be a string or an array of strings, got " + brief(one));
    const auto& text = one.get_ref<const std::string&>();
    if (text.empty()) return f.fail("stop", "must not hold an empty string");
    if (text.size() > kMaxStopBytes)
      return f.fail("stop", "holds a string of " + std::to_string(text.size()) + " bytes; the limit is " + std::to_string(kMaxStopBytes));
    s.stop.push_back(text);
  };
  if (!v->is_array()) return add(*v);
  if (v->size() > kMaxStops)
    return f.fail("stop", "holds " + std::to_string(v->size()) + " strings; the limit is " + std::to_string(kMaxStops));
  for (const Json& one : *v) add(one);
}

void read_logit_bias(Fields& f, int vocab_size, sample::SamplingParams& p) {
  const Json* v = f.find("logit_bias");
  if (!v) return;
  if (!v->is_object()) return f.fail("logit_bias", "must map token ids to numbers, got " + brief(*v));
  for (const auto& [key, value] : v->items()) {
    int64_t id = -1;
    const auto [end, ec] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (ec != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size)
      return f.fail("logit_bias", "names token " + brief(Json(key)) + ", which is not in the vocabulary: ids run from 0 to " +
                                      std::to_string(vocab_size - 1));
    const double bias = value.is_number() ? value.get<double>() : 1e9;
    if (!(bias >= -100 && bias <= 100))
      return f.fail("logit_bias", "for token " + std::to_string(id) + " must be a number from -100 to 100, got " + brief(value));
    p.logit_bias.emplace_back(int32_t(id), float(bias));
  }
  // A key that came twice, or as "7" and "07": the last one holds, as it does for a JSON object.
  std::stable_sort(p.logit_bias.begin(), p.logit_bias.end(), [](auto& a, auto& b) { return a.first < b.first; });
  auto keep = p.logit_bias.begin();
  for (auto it = p.logit_bias.begin(); it != p.logit_bias.end(); ++it)
    if (std::next(it) == p.logit_bias.end() || std::next(it)->first != it->first) *keep++ = *it;
  p.logit_bias.erase(keep, p.logit_bias.end());
}

void read_sampling(Fields& f, int vocab_size, sample::SamplingParams& p) {
  p.temperature = float(f.number("temperature", 0, 2, 1));
  p.top_p = float(f.number("top_p", 0, 1, 1, true));
  p.top_k = int32_t(std::max<int64_t>(0, f.integer("top_k", -1, INT32_MAX, 0)));
  p.min_p = float(f.number("min_p", 0, 1, 0));
  p.presence_penalty = float(f.number("presence_penalty", -2, 2, 0));
  p.frequency_penalty = float(f.number("frequency_penalty", -2, 2, 0));
  const char* repetition = f.has("repetition_penalty") ? "repetition_penalty" : "repeat_penalty";
  p.repetition_penalty = float(f.number(repetition, 0, 100, 1, true));
  read_logit_bias(f, vocab_size, p);
  p.seed = fresh_seed();
  if (const Json* seed = f.find("seed")) {
    int64_t value = 0;
    if (seed->is_number_unsigned()) p.seed = seed->get<uint64_t>();
    else if (as_integer(*seed, value)) p.seed = uint64_t(value);
    else f.fail("seed", "must be a 64-bit integer, got " + brief(*seed));
  }
}

// auto and default are served at once, flex behind them. `priority` as vLLM has it: lower is sooner; above 0 is batch. What the
// body leaves open the header says, then the key, then the pool that the model's name leads to.
void read_class(Fields& f, const Call& call, const Pool* named, Generation& out) {
  const std::string tier = f.string("service_tier", "");
  const int64_t priority = f.integer("priority", INT64_MIN, INT64_MAX, 0);
  if (f.has("service_tier")) {
    if (tier != "auto" && tier != "default" && tier != "flex")
      f.fail("service_tier", "must be one of auto, default and flex, got " + brief(Json(tier)));
    out.service_tier = tier == "flex" ? "flex" : "default";
  }
  sched::RequestClass& cls = out.submission.request_class;
  const std::string_view header = call.request.header("x-sluice-class");
  if (f.has("service_tier") || f.has("priority")) {
    if (tier == "flex" || priority > 0) cls = sched::RequestClass::kBatch;
  } else if (!header.empty()) {
    auto told = parse_class(header, "x-sluice-class");
    if (told.ok()) cls = *told;
    else f.fail(told.error());
  } else if (call.key && call.key->request_class) {
    cls = *call.key->request_class;
  } else if (named && !named->takes[size_t(cls)]) {
    cls = sched::RequestClass::kBatch;
  }
  if (call.in_batch || (call.key && call.key->request_class == sched::RequestClass::kBatch)) cls = sched::RequestClass::kBatch;
}

// Hints: when the first token, and each after it, is wanted. And how long the request may wait to be begun.
void read_targets(Fields& f, const Call& call, sched::Submission& s) {
  constexpr double kMost = 3'600'000;
  s.ttft_target_us = TimeUs(f.number("ttft_ms", 0, kMost, 0) * 1000);
  s.tpot_target_us = TimeUs(f.number("tpot_ms", 0, kMost, 0) * 1000);
  const double limit = call.in_batch ? 0 : double(call.context->options.queue_timeout_us) / 1000;
  const double wait = f.number("queue_timeout_ms", 0, kMost, 0);
  s.queue_timeout_us = TimeUs((wait > 0 && limit > 0 ? std::min(wait, limit) : wait + limit) * 1000);
}

void read_share(Fields& f, const Call& call, sched::Submission& s) {
  const std::string user = f.string("user", "", 4096);
  s.share_key = salt_of(call.key ? call.key->name : user);
  s.share_weight = call.key ? call.key->weight : 1;
}

void read_stream(Fields& f, Generation& out) {
  out.stream = f.boolean("stream", false);
  const Json* options = f.find("stream_options");
  if (!options) return;
  if (!options->is_object()) return f.fail("stream_options", "must be an object, got " + brief(*options));
  if (!out.stream) return f.fail("stream_options", "is only allowed when stream is true");
  Fields inner(*options, "stream_options.");
  out.include_usage = inner.boolean("include_usage", false);
  if (!inner.status().ok()) f.fail(inner.status().error());
}

void read_refused(Fields& f) {
  for (const char* name : kUnsupported)
    if (const Json* v = f.find(name); v && !empty_value(*v)) f.fail(name, "is not supported yet");
  if (const Json* format = f.find("response_format")) {
    if (!format->is_object()) return f.fail("response_format", "must be an object, got " + brief(*format));
    Fields inner(*format, "response_format.");
    const std::string type = inner.string("type", "");
    if (!inner.status().ok()) f.fail(inner.status().error());
    else if (type != "text") f.fail("response_format", "of type " + brief(Json(type)) + " is not supported yet; only text is");
  }
}

}  // namespace

Status check_model(const Json& body, const ServedModel& model) {
  Fields f(body);
  const std::string name = f.string("model", model.id);
  SLUICE_TRY(f.status());
  if (name == model.id || std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end()) return {};
  return Error{ErrorCode::kNotFound, "the model " + brief(Json(name)) + " does not exist; " + brief(Json(model.id)) + " is served here", "model"};
}

Status read_common(const Json& body, const Call& call, Generation& out) {
  const Context& context = *call.context;
  SLUICE_TRY(check_model(body, context.model));
  Fields f(body);
  const int vocab_size = context.model.tokenizer->size();
  sched::Submission& s = out.submission;
  read_stream(f, out);
  s.n = int32_t(f.integer("n", 1, kMaxChoices, 1));
  read_sampling(f, vocab_size, s.sampling);
  read_stop(f, s);
  s.include_stop = f.boolean("include_stop_str_in_output", false);
  s.ignore_eos = f.boolean("ignore_eos", false);
  s.keep_special = !f.boolean("skip_special_tokens", true);
  s.min_tokens = int32_t(f.integer("min_tokens", 0, INT32_MAX, 0));
  if (const Json* v = f.find("stop_token_ids")) {
    auto ids = token_ids(*v, vocab_size, "stop_token_ids");
    if (ids.ok()) s.stop_token_ids = std::move(*ids);
    else f.fail(ids.error());
  }
  out.prompt_logprobs = int(f.integer("prompt_logprobs", 0, sample::kMaxLogprobs, -1));
  if (out.stream && out.prompt_logprobs >= 0) f.fail("prompt_logprobs", "is not available with stream");
  s.prompt_logprobs = out.prompt_logprobs;
  read_share(f, call, s);
  read_targets(f, call, s);
  const std::string salt = f.string("cache_salt", "", 4096);
  if (f.has("cache_salt")) {
    if (salt.empty()) f.fail("cache_salt", "must not be empty");
    s.cache_salt = salt_of(salt);
  }
  const std::string model = f.string("model", "");
  read_class(f, call, pool_of_alias(context.pools, model), out);
  out.pool = &choose_pool(context.pools, model, call.key ? call.key->pool : "", s.request_class);
  read_refused(f);
  return f.status();
}

Status check_text_size(const Context& context, size_t bytes, const char* field) {
  const size_t least = bytes / context.max_token_bytes;
  if (least <= size_t(context.model.max_context)) return {};
  return Error{ErrorCode::kContextLength, "this model's maximum context length is " + std::to_string(context.model.max_context) +
                   " tokens, but the prompt alone has at least " + std::to_string(least), field};
}

Status settle_length(const Context& context, int64_t asked, const char* field, Generation& out) {
  const int64_t limit = context.model.max_context;
  int64_t longest = 0;
  for (const Prompt& p : out.prompts) longest = std::max(longest, int64_t(p.ids.size()));
  const int64_t output = asked < 0 ? 1 : asked;
  if (longest + output > limit)
    return Error{ErrorCode::kContextLength, "this model's maximum context length is " + std::to_string(limit) +
                     " tokens, but " + std::to_string(longest + output) + " were requested (" + std::to_string(longest) +
                     " in the prompt, " + (asked < 0 ? "at least " : "") + std::to_string(output) + " for the output)", field};
  if (asked < 0) {  // all that there is room for, in the model and in the cache
    const int64_t cache = out.pool->engine->kv_tokens();
    const int64_t room = cache > 0 ? std::min(limit, cache) : limit;
    asked = std::max<int64_t>(1, room - longest);
  }
  out.submission.max_tokens = int32_t(asked);
  if (out.submission.min_tokens > asked)
    return invalid("min_tokens is " + std::to_string(out.submission.min_tokens) + ", more than max_tokens, which is " +
                       std::to_string(asked), "min_tokens");
  return {};
}

}  // namespace sluice::api
