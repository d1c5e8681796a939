#include "lab/speculation.h"

#include <algorithm>

#include "lab/oracle_executor.h"

namespace sluice::lab {
namespace {

constexpr std::string_view kRandom = "random:";
constexpr double kMostOfFree = 0.25;  // of a host's free memory that the draft model's cache may take

}  // namespace

Status check_speculation(const SpeculateOptions& o) {
  const std::string mode = o.chosen();
  if (mode != "off" && mode != "ngram" && mode != "draft" && mode != "auto") return invalid("'" + mode + "' is none of off, ngram, draft, auto", "--speculate");
  if (mode == "draft" && o.draft.empty()) return invalid("draft needs a draft model: give --draft MODEL", "--speculate");
  if (o.verify != "coupled" && o.verify != "rejection") return invalid("'" + o.verify + "' is neither coupled nor rejection", "--verify");
  if (o.max_drafts < 1 || o.max_drafts > sched::kMaxDrafts)
    return invalid(std::to_string(o.max_drafts) + " is outside 1.." + std::to_string(sched::kMaxDrafts), "--max-drafts");
  return {};
}

Status set_verification(const SpeculateOptions& o, LoadedModel& target) {
  SLUICE_TRY(check_speculation(o));
  target.scheduler.rejection = o.verify == "rejection" && o.chosen() != "off";
  if (target.scheduler.rejection && !target.model->kernels().host_memory)
    return Error{ErrorCode::kUnsupported, std::string("drafts are verified by rejection on the host, not on ") + target.model->kernels().name, "--verify"};
  return {};
}

Status check_vocabularies(const LoadedModel& target, const LoadedModel& draft) {
  const text::Tokenizer &t = *target.tokenizer, &d = *draft.tokenizer;
  for (int32_t id = 0; id < std::min(t.size(), d.size()); ++id)
    if (t.token_text(id) != d.token_text(id))
      return Error{ErrorCode::kUnsupported, draft.name + " cannot draft for " + target.name + ": token " + std::to_string(id) + " is '" +
                                                d.token_text(id) + "' there and '" + t.token_text(id) + "' here", "--draft"};
  return {};
}

LoadOptions draft_options(LoadOptions o, const std::string& draft, int vocab) {
  o.block_tokens = block_tokens_of(o);
  if (const auto type = find_cache_type(o.kv_type); type && keys_in_groups(type->keys)) o.kv_type = cache_type_name({CacheElement::kInt8, type->values});
  const bool random = draft.starts_with(kRandom);
  o.model = random ? "" : draft;
  o.random = random ? draft.substr(kRandom.size()) : "";
  o.random_vocab = vocab;
  o.save.clear();
  o.depth = 1;
  return o;
}

DraftNeeds draft_needs(const MemoryPlan& p, int executors) {
  return {p.weights_bytes, uint64_t(executors) * p.activation_bytes, uint64_t(executors) * p.kv_bytes_per_token};
}

Result<DraftNeeds> draft_needs(const LoadOptions& target, const SpeculateOptions& s, int executors) {
  if (!s.needs_draft()) return DraftNeeds();
  SLUICE_ASSIGN(const kernels::KernelTable* table, choose_kernels(target));
  if (table->host_memory) return DraftNeeds();
  int vocab = 0;
  if (s.draft.starts_with(kRandom)) {
    SLUICE_ASSIGN(const ModelShape shape, read_shape(target, *table));
    vocab = shape.spec.vocab;
  }
  const LoadOptions o = draft_options(target, s.draft, vocab);
  SLUICE_ASSIGN(const ModelShape shape, read_shape(o, *table));
  SLUICE_ASSIGN(const MemoryPlan p, plan_without_cache(shape, *table, o));
  return draft_needs(p, executors);
}

Result<LoadedModel> load_draft(const LoadedModel& target, const LoadOptions& options, const std::string& draft, const LoadedModel* loaded) {
  LoadOptions o = draft_options(options, draft, target.model->spec().vocab);
  SLUICE_ASSIGN(const auto file, open_weights(o, false));
  SLUICE_ASSIGN(const model::ModelSpec spec, model::read_spec(file->metadata()));
  SLUICE_ASSIGN(const CacheType kv_type, parse_kv_type(o.kv_type));
  const kernels::KernelTable& kernels = target.model->kernels();
  const uint64_t a_block = uint64_t(o.block_tokens) * exec::DeviceExecutor::kv_bytes_per_token(spec, kv_type, o.block_tokens);
  uint64_t blocks = uint64_t(target.memory.draft_blocks);
  if (kernels.host_memory)
    blocks = std::max(kLeastBlocks, std::min(uint64_t(target.scheduler.total_blocks), uint64_t(kMostOfFree * double(available_memory(kernels))) / a_block));
  o.kv_memory = std::to_string(blocks * a_block);
  o.context = std::min(target.scheduler.max_context, spec.max_context);
  if (loaded) return reconfigure(*loaded, o, loaded->memory.available_bytes);
  SLUICE_ASSIGN(LoadedModel m, load_model(o, nullptr));
  SLUICE_TRY(check_vocabularies(target, m));
  return m;
}

Result<std::shared_ptr<draft::Speculator>> make_speculator(const LoadedModel& target, const LoadedModel* m, const SpeculateOptions& o, const Clock* clock) {
  SLUICE_TRY(check_speculation(o));
  const std::string mode = o.chosen();
  if (mode == "off") return std::shared_ptr<draft::Speculator>();
  draft::SpeculatorOptions s;
  s.lookups = mode != "draft";
  s.suffix = o.suffix;
  s.max_drafts = o.max_drafts;
  s.fixed = o.fixed;
  std::unique_ptr<draft::DraftModel> proposer;
  if (m && mode != "ngram") {
    LoadedModel own = *m;  // the weights are shared
    own.device.threads = target.device.threads;
    SLUICE_ASSIGN(auto device, own.make_executor());
    SLUICE_TRY(device->warm_up());
    std::unique_ptr<exec::Executor> executor = std::move(device);
    if (o.oracle > 0) executor = std::make_unique<OracleExecutor>(std::move(executor), o.oracle);
    draft::DraftModelOptions d;
    d.vocab = m->scheduler.vocab;
    d.target_vocab = target.scheduler.vocab;
    d.max_context = m->scheduler.max_context;
    d.max_step_tokens = m->scheduler.max_step_tokens;
    d.max_sequences = m->scheduler.max_sequences;
    d.rejection = target.scheduler.rejection;
    if (d.rejection && d.vocab > d.target_vocab)
      return Error{ErrorCode::kUnsupported, m->name + " has " + std::to_string(d.vocab) + " tokens and " + target.name + " " + std::to_string(d.target_vocab) +
                                                ": verification by rejection needs all of them there", "--verify"};
    proposer = std::make_unique<draft::DraftModel>(d, std::move(executor), clock);
  }
  return std::make_shared<draft::Speculator>(s, std::move(proposer));
}

Result<std::shared_ptr<draft::Speculator>> load_speculator(const LoadedModel& target, const LoadOptions& load, const SpeculateOptions& o, const Clock* clock) {
  SLUICE_TRY(check_speculation(o));
  if (!o.needs_draft()) return make_speculator(target, nullptr, o, clock);
  SLUICE_ASSIGN(const LoadedModel draft, load_draft(target, load, o.draft));
  return make_speculator(target, &draft, o, clock);
}

}  // namespace sluice::lab
