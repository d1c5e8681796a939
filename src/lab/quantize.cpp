#include "lab/quantize.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "format/part_file.h"
#include "lab/calibration.h"
#include "lab/loaded_model.h"
#include "lab/quantize_folder.h"
#include "lab/quantize_plan.h"
#include "lab/site_inputs.h"
#include "quant/calibrate/block_choice.h"
#include "quant/calibrate/column_squares.h"
#include "quant/fit.h"
#include "quant/mixes.h"

namespace sluice::lab {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr size_t kChunkElements = size_t{1} << 17;  // that a thread decodes, quantises and writes at a time
constexpr int kColumnsPerTask = 256;
constexpr size_t kRowsTogether = 8;  // that error feedback rounds side by side

std::string shown_value(float v) { return std::isnan(v) ? "NaN" : std::isinf(v) ? (v > 0 ? "infinity" : "-infinity") : std::to_string(v); }

class Quantizer {
 public:
  Quantizer(const QuantizeOptions& options, QuantizePlan plan, std::vector<int32_t> tokens, format::PartFile out)
      : o_(options), plan_(std::move(plan)), tokens_(std::move(tokens)), out_(std::move(out)), threads_(o_.threads > 0 ? o_.threads : default_threads()) {}

  Result<QuantizeReport> run() {
    SLUICE_TRY(out_.write(0, {reinterpret_cast<const uint8_t*>(plan_.layout.head.data()), plan_.layout.head.size()}));
    if (tokens_.empty()) {
      for (size_t i = 0; i < plan_.tensors.size(); ++i) SLUICE_TRY(tensor(i, {}));
    } else {
      SLUICE_TRY(walk());
    }
    SLUICE_TRY(out_.finish());
    return report();
  }

 private:
  const format::TensorEntry& input(size_t i) const { return plan_.file->tensors()[i]; }
  bool stopped() const { return o_.stop && o_.stop->load(std::memory_order_relaxed); }
  Error cancelled() const { return {ErrorCode::kCancelled, "interrupted; the same command goes on from here", {}}; }

  // Layer by layer: what its matrices are fed, then the matrices. Whatever belongs to no layer comes last.
  Status walk() {
    LoadOptions load;
    load.isa = o_.isa;
    SLUICE_ASSIGN(const kernels::KernelTable* kernels, choose_kernels(load));
    SLUICE_ASSIGN(auto calibration, Calibration::make(plan_.file, tokens_, o_.window, *kernels, threads_));
    if (plan_.method == "gptq") SLUICE_TRY(calibration->follow_original());
    int number = 0;
    std::vector<float> state;
    if (out_.resumed() && out_.load_state(number, state)) calibration->restore(number, state);
    while (calibration->next_layer() < calibration->spec().num_layers) SLUICE_TRY(layer(*calibration));
    SLUICE_ASSIGN(const std::vector<float> head, head_inputs(*calibration));
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      // A tied embedding is the head too; one that is not is only looked up.
      const bool is_head = input(i).name == "output.weight" || (input(i).name == "token_embd.weight" && !plan_.file->find("output.weight"));
      SLUICE_TRY(tensor(i, {is_head ? &head : nullptr}));
    }
    return {};
  }

  Status layer(Calibration& c) {
    if (stopped()) return cancelled();
    SLUICE_TRY(out_.save_state(c.next_layer(), c.state()));
    SLUICE_TRY(plan_.method == "gptq" ? layer_in_turn(c) : layer_at_once(c));
    plan_.file->keep_only(nullptr);
    return {};
  }

  // How much each column counts.
  Status layer_at_once(Calibration& c) {
    const int layer = c.next_layer();
    const auto start = Clock::now();
    std::map<Site, quant::ColumnSquares> squares;
    std::map<Site, quant::InputSample> samples;
    SLUICE_TRY(c.run_layer([&](Site site, const float* rows, int count, int cols) {
      add_squares(c, squares.try_emplace(site, cols).first->second, rows, count);
      samples.try_emplace(site, cols, c.num_tokens()).first->second.add(rows, count);
    }));
    std::map<Site, std::vector<float>> importances;
    for (const auto& [site, s] : squares) importances[site] = s.mean(tokens_.size());
    calibration_seconds_ += since(start);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      Site site{};
      if (site_of(input(i).name, site) != layer) continue;
      const std::vector<float>& importance = importances[site];
      if (int64_t(importance.size()) == input(i).cols()) SLUICE_TRY(tensor(i, {&importance, nullptr, &samples[site]}));
    }
    return {};
  }

  // How columns go together, too: each site's matrices learn from what those before them have become.
  Status layer_in_turn(Calibration& c) {
    const int layer = c.next_layer();
    std::vector<std::vector<uint8_t>> bytes;
    std::vector<format::TensorEntry> rounded;
    auto start = Clock::now();
    for (const Site site : kSites) {
      SLUICE_ASSIGN(const auto x, learn_site(c, site, rounded));
      if (!x) continue;
      for (size_t i = 0; i < plan_.tensors.size(); ++i) {
        Site of{};
        if (site_of(input(i).name, of) != layer || of != site) continue;
        if (x->factor.cols != input(i).cols()) continue;
        if (!out_.done(i) && plan_.tensors[i].weight_format->shape) aim(c, input(i), *x);
        calibration_seconds_ += since(start);
        SLUICE_TRY(tensor(i, {&x->importance, &x->factor}));
        start = Clock::now();
        aims_.clear();
        format::TensorEntry t = plan_.tensors[i];
        bytes.emplace_back(size_t(t.rows()) * quant::row_bytes(*t.weight_format, size_t(t.cols())));
        SLUICE_TRY(out_.read(plan_.layout.offsets[i], bytes.back()));
        t.bytes = bytes.back();
        rounded.push_back(std::move(t));
      }
    }
    SLUICE_TRY(c.run_layer(nullptr, rounded));
    calibration_seconds_ += since(start);
    return {};
  }
  // What a matrix's weights should be for inputs as they have become.
  void aim(const Calibration& c, const format::TensorEntry& t, const SiteInputs& x) {
    const quant::Parallel parallel = [&](int n, const std::function<void(int)>& fn) { c.parallel(n, fn); };
    aims_.resize(size_t(t.elements()));
    parallel(int(t.rows()), [&](int r) { format::decode_rows(t, r, r + 1, &aims_[size_t(r) * size_t(t.cols())]); });
    x.drift.follow(aims_.data(), int(t.rows()), x.factor, quant::Drift::kShare, parallel);
  }

  static void add_squares(const Calibration& c, quant::ColumnSquares& s, const float* rows, int count) {
    const int cols = s.cols();
    c.parallel((cols + kColumnsPerTask - 1) / kColumnsPerTask,
               [&](int i) { s.add(rows, count, i * kColumnsPerTask, std::min(cols, (i + 1) * kColumnsPerTask)); });
  }

  Result<std::vector<float>> head_inputs(Calibration& c) {
    quant::ColumnSquares s(c.spec().dim);
    SLUICE_TRY(c.run_head([&](const float* rows, int count) { add_squares(c, s, rows, count); }));
    return s.mean(tokens_.size());
  }

  // What is known of a matrix's inputs; each may be nullptr.
  struct Heard {
    const std::vector<float>* importance = nullptr;   // of the columns
    const quant::FeedbackFactor* factor = nullptr;    // of error feedback, which rounds aims_
    const quant::InputSample* sample = nullptr;       // to choose among blocks' roundings by
  };
  // Threads take chunks of rows; each row's bytes have their place in the file.
  Status tensor(size_t i, const Heard& heard) {
    if (out_.done(i)) return {};
    if (stopped()) return cancelled();
    const format::TensorEntry &in = input(i), &to = plan_.tensors[i];
    tell(to.name);
    const size_t rows = size_t(in.rows()), cols = size_t(in.cols()), chunk = std::max<size_t>(1, kChunkElements / cols / kRowsTogether) * kRowsTogether;
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex mutex;
    Status status;
    const auto work = [&] {
      for (size_t row; !failed && (row = next.fetch_add(chunk)) < rows;) {
        Status s = stopped() ? Status(cancelled()) : rows_of(i, row, std::min(chunk, rows - row), heard);
        if (s.ok()) continue;
        const std::lock_guard lock(mutex);
        if (!failed.exchange(true)) status = std::move(s);
      }
    };
    std::vector<std::thread> pool;
    for (int t = 1; t < threads_ && rows > chunk; ++t) pool.emplace_back(work);
    work();
    for (std::thread& t : pool) t.join();
    SLUICE_TRY(status);
    if (!plan_.copied[i]) weights_done_ += in.elements();
    return out_.mark(i);
  }

  Status rows_of(size_t i, size_t row, size_t count, const Heard& heard) {
    const format::TensorEntry &in = input(i), &to = plan_.tensors[i];
    const size_t cols = size_t(in.cols()), stride = quant::row_bytes(*to.weight_format, cols);
    const uint64_t at = plan_.layout.offsets[i] + row * stride;
    std::vector<uint8_t> bytes(count * stride);
    if (plan_.copied[i]) {
      format::read_rows(in, int64_t(row), int64_t(row + count), bytes.data());
      return out_.write(at, bytes);
    }
    std::vector<float> x(count * cols), y(count * cols);
    format::decode_rows(in, int64_t(row), int64_t(row + count), x.data());
    if (const size_t bad = quant::first_unfit(x.data(), x.size()); bad < x.size())
      return bad_file(in.name + ": element " + std::to_string(row * cols + bad) + " (row " + std::to_string(row + bad / cols) + ", column " + std::to_string(bad % cols) +
                      ") is " + shown_value(x[bad]) + "; weights must be finite and at most 65504 in size");
    const quant::WeightFormat& f = *to.weight_format;
    const float* importance = heard.importance ? heard.importance->data() : nullptr;
    if (heard.factor && f.shape) quant::feedback_rows(f, *heard.factor, &aims_[row * cols], *heard.importance, int(count), bytes.data());
    else if (heard.sample && f.shape) quant::fit_together(f, x.data(), importance, *heard.sample, bytes.data(), count, cols);
    else quant::fit(f, x.data(), importance, bytes.data(), count, cols);
    to.weight_format->decode(bytes.data(), y.data(), y.size());
    double error = 0, square = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      error += double(x[k] - y[k]) * (x[k] - y[k]);
      square += double(x[k]) * x[k];
    }
    {
      const std::lock_guard lock(sums_);
      error_ += error;
      square_ += square;
    }
    return out_.write(at, bytes);
  }

  void tell(const std::string& what) {
    if (!o_.progress) return;
    if (first_ < 0) first_ = weights_done_ + skipped();  // what an earlier run did says nothing of this one's speed
    const double all = double(plan_.weights), done = double(weights_done_ + skipped()), here = done - double(first_);
    o_.progress({what, all > 0 ? done / all : 1, here > 0 ? since(start_) * (all - done) / here : -1});
  }
  int64_t skipped() {
    if (skipped_ < 0) {
      skipped_ = 0;
      for (size_t i = 0; i < plan_.tensors.size(); ++i)
        if (out_.done(i) && !plan_.copied[i]) skipped_ += input(i).elements();
    }
    return skipped_;
  }

  QuantizeReport report() const {
    QuantizeReport r;
    r.method = plan_.method;
    r.in_bytes = plan_.file->file_bytes();
    r.out_bytes = plan_.layout.file_bytes;
    r.seconds = since(start_);
    r.calibration_seconds = calibration_seconds_;
    r.calibration_tokens = int(tokens_.size());
    r.relative_error = square_ > 0 ? std::sqrt(error_ / square_) : 0;
    r.resumed = out_.resumed();
    int64_t bits = 0, elements = 0;
    for (const format::TensorEntry& t : plan_.tensors) {
      const auto same = [&](const QuantizedType& q) { return q.name == t.weight_format->name; };
      auto at = std::find_if(r.types.begin(), r.types.end(), same);
      if (at == r.types.end()) at = r.types.insert(at, {t.weight_format->name, 0, 0, 0});
      const int64_t bytes = t.rows() * int64_t(quant::row_bytes(*t.weight_format, size_t(t.cols())));
      ++at->tensors;
      at->parameters += t.elements();
      at->bytes += bytes;
      bits += 8 * bytes;
      elements += t.elements();
    }
    r.bits_per_weight = elements ? double(bits) / double(elements) : 0;
    return r;
  }

  const QuantizeOptions& o_;
  QuantizePlan plan_;
  std::vector<int32_t> tokens_;
  format::PartFile out_;
  int threads_;
  Clock::time_point start_ = Clock::now();
  double calibration_seconds_ = 0;
  int64_t weights_done_ = 0, first_ = -1, skipped_ = -1;
  std::vector<float> aims_;  // of the tensor at hand, or empty
  std::mutex sums_;
  double error_ = 0, square_ = 0;
};

}  // namespace

Result<QuantizeReport> quantize(const QuantizeOptions& o) {
  if (o.output.empty()) return invalid("an output file is missing", "OUT");
  const bool both = o.output.ends_with(".gguf") && quant::find_mix(o.type);  // floats are types of files and of folders: the name decides
  if (const auto folder = find_folder_type(o.type); folder && !both) return quantize_folder(o, *folder);
  SLUICE_ASSIGN(QuantizePlan plan, plan_quantization(o));
  SLUICE_ASSIGN(std::vector<int32_t> tokens, calibration_tokens(o, *plan.file));
  const uint64_t fingerprint = fingerprint_of(o, plan, tokens);
  SLUICE_ASSIGN(format::PartFile out, format::PartFile::open(o.output, fingerprint, plan.tensors.size(), plan.layout.file_bytes));
  if (o.note && out.resumed()) o.note("goes on with what an earlier run left in " + o.output + ".part");
  return Quantizer(o, std::move(plan), std::move(tokens), std::move(out)).run();
}

}  // namespace sluice::lab
