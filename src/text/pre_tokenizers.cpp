#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizers.h"

#include <pcre2.h>

#include "text/utf8.h"

namespace sluice::text {
namespace {

constexpr uint32_t kMatchLimit = 50'000'000;  // backtracking steps of one match; far above what these regexes need
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackMax = 4 << 20;

// Everything pcre2 needs to match once; made per call, so that a PreTokenizer is shared without locks.
struct Matcher {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackMax, nullptr);
  pcre2_match_data* data = pcre2_match_data_create(4, nullptr);

  Matcher() {
    if (context == nullptr) return;
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher() {
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
  }
};

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

// Ends of the runs of text that are wholly valid or wholly invalid UTF-8, alternating; `first_valid` tells which leads.
std::vector<size_t> validity_runs(std::string_view text, bool& first_valid) {
  std::vector<size_t> ends;
  bool current = true;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (i == 0) first_valid = current = c.valid;
    if (c.valid != current) {
      ends.push_back(i);
      current = c.valid;
    }
    i += c.length;
  }
  ends.push_back(text.size());
  return ends;
}

}  // namespace

struct PreTokenizer::Compiled {
  std::unique_ptr<pcre2_code, CodeDeleter> code;

  void cut(std::string_view piece, size_t offset, Matcher& matcher, std::vector<size_t>& ends) const;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::make(std::string_view name) {
  const PreTokenizerTraits* traits = find_pre_tokenizer(name);
  if (traits == nullptr)
    return Error{ErrorCode::kUnsupported, "tokenizer.ggml.pre: no pre-tokenizer is named '" + std::string(name) + "'", {}};
  PreTokenizer made;
  made.ignore_merges_ = traits->ignore_merges;
  made.add_bos_ = traits->add_bos;
  for (const std::string_view regex : traits->regexes) {
    if (regex.empty()) break;
    int error = 0;
    size_t where = 0;
    Compiled step;
    step.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY,
                                  &error, &where, nullptr));
    if (!step.code)
      return Error{ErrorCode::kInternal, "pre-tokenizer '" + std::string(name) + "': regex error " + std::to_string(error) + " at " + std::to_string(where), {}};
    pcre2_jit_compile(step.code.get(), PCRE2_JIT_COMPLETE);  // without JIT support matching still works, slower
    made.steps_.push_back(std::move(step));
  }
  return made;
}

void PreTokenizer::Compiled::cut(std::string_view piece, size_t offset, Matcher& matcher, std::vector<size_t>& ends) const {
  size_t at = 0, done = 0;  // done: end of the last piece emitted
  while (at < piece.size()) {
    const int rc = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), at, PCRE2_NO_UTF_CHECK, matcher.data, matcher.context);
    if (rc < 0) break;  // no match, or a limit: the rest is one piece
    const size_t* span = pcre2_get_ovector_pointer(matcher.data);
    if (span[1] <= span[0]) break;
    if (span[0] > done) ends.push_back(offset + span[0]);
    ends.push_back(offset + span[1]);
    done = at = span[1];
  }
  if (done < piece.size()) ends.push_back(offset + piece.size());
}

void PreTokenizer::cut(std::string_view text, std::vector<size_t>& ends) const {
  if (text.empty()) return;
  Matcher matcher;
  if (matcher.context == nullptr || matcher.data == nullptr) {
    ends.push_back(text.size());
    return;
  }
  bool valid = true;
  std::vector<size_t> pieces, next;
  size_t run_begin = 0;
  for (const size_t run_end : validity_runs(text, valid)) {
    pieces.assign(1, run_end);
    for (size_t step = 0; valid && step < steps_.size(); ++step) {
      next.clear();
      size_t begin = run_begin;
      for (const size_t end : pieces) {
        steps_[step].cut(text.substr(begin, end - begin), begin, matcher, next);
        begin = end;
      }
      pieces.swap(next);
    }
    ends.insert(ends.end(), pieces.begin(), pieces.end());
    run_begin = run_end;
    valid = !valid;
  }
}

}  // namespace sluice::text
