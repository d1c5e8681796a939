// Calibration: a model walked layer by layer over windows of tokens, with one layer's weights in memory at a time. What each matrix
// is fed goes to a collector, which learns from it how much its columns matter.
//
// The layers' own weights make the next layer's inputs; float weights are rounded to Q8_0 for that, which is several times as fast
// and moves what is collected by far less than another text would. Windows are read alone, from position 0.
// Memory: a layer, one window's activations, and the residual stream of all tokens (tokens x dim floats); twice the layer and the stream
// where the model as it was is walked too.
// Threads: one at a time; the work is spread over options.threads. The same bits for any number of them.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/backend_buffer.h"
#include "model/model.h"
#include "tensor/buffer.h"

namespace sluice::lab {

// The products that share an input, in order.
enum class Site { kAttention, kAttentionOut, kFfn, kFfnDown };
constexpr int kNumSites = 4;
constexpr Site kSites[kNumSites] = {Site::kAttention, Site::kAttentionOut, Site::kFfn, Site::kFfnDown};
// Of a matrix by its tensor name ("blk.3.attn_q.weight"); the layer, or -1: no matrix of a layer.
int site_of(std::string_view tensor_name, Site& site);

class Calibration {
 public:
  // rows [count, cols]: inputs of the site's matrices, in the order of the text.
  using Collector = std::function<void(Site site, const float* rows, int count, int cols)>;

  // tokens: windows of `window` tokens, a whole number of them. Errors: kUnsupported, kBadFile of the model.
  static Result<std::unique_ptr<Calibration>> make(std::shared_ptr<const format::WeightFile> file, std::vector<int32_t> tokens, int window,
                                                   const kernels::KernelTable& kernels, int threads);
  ~Calibration();

  const model::ModelSpec& spec() const { return spec_; }
  int next_layer() const { return next_layer_; }
  int num_tokens() const { return int(tokens_.size()); }
  // Runs the next layer over all windows, its inputs shown to the collector, and leaves its outputs for the one after. replaced: tensors
  // that stand in for the file's (what they were quantised to); may be empty.
  Status run_layer(const Collector& collect, std::span<const format::TensorEntry> replaced = {});

  // For those who replace layers: from the first layer on the model as it was is walked beside the one that layers are replaced in. To be said before
  // the first.
  Status follow_original();
  // before: what the rows were in the model as it was.
  using PairCollector = std::function<void(Site site, const float* before, const float* rows, int count, int cols)>;
  // Shows the next layer's inputs, of one site or of all, as often as wanted: with the layer's own weights, and with `replaced` in the place of some.
  // last: the model as it was goes on; run_layer then takes on the other.
  Status show_layer(const PairCollector& collect, std::optional<Site> only, std::span<const format::TensorEntry> replaced, bool last);
  // After the last layer: the head's inputs, normed.
  Status run_head(const std::function<void(const float* rows, int count)>& collect);

  // The residual stream (or both, one after the other) before next_layer, to go on from later. restore: false where it does not fit.
  std::span<const float> state() const { return {residual_.as<float>(), residual_.bytes() / sizeof(float)}; }
  bool restore(int layer, std::span<const float> state);
  // Spreads fn(i), i in [0, n), over the threads.
  void parallel(int n, const std::function<void(int)>& fn) const;

 private:
  Calibration(std::shared_ptr<const format::WeightFile> file, std::vector<int32_t> tokens, int window, const kernels::KernelTable& kernels, int threads);
  Status start();
  void embed();
  Result<std::shared_ptr<const format::WeightFile>> layer_file(int layer, std::span<const format::TensorEntry> replaced) const;
  struct Layer;
  Result<std::unique_ptr<Layer>> load_layer(std::span<const format::TensorEntry> replaced) const;
  // One window through a layer, its inputs to the collector.
  void run_window(const Layer& layer, float* residual, bool keep_outputs, const Collector& collect, std::optional<Site> only = {});
  void show(Site site, const kernels::LinearArgs& args, const Collector& collect);
  float* stream(int which) { return residual_.as<float>() + size_t(which) * tokens_.size() * size_t(spec_.dim); }

  std::shared_ptr<const format::WeightFile> file_;
  std::vector<int32_t> tokens_;
  int window_;
  const kernels::KernelTable& kernels_;
  int threads_;
  model::ModelSpec spec_;
  int next_layer_ = 0;
  kernels::Context* context_ = nullptr;
  std::unique_ptr<model::Activations> activations_;
  bool follows_ = false;
  std::unique_ptr<Layer> original_;  // the next layer as the file has it, while it is shown
  Buffer residual_, inputs_;  // [tokens, dim], twice with the model as it was; [window, largest K], of one site
  kernels::BackendBuffer keys_, values_;
  std::vector<int32_t> positions_, sequence_of_, query_begin_, kv_len_, block_begin_, block_ids_;
};

}  // namespace sluice::lab
