// GPTQ (of integers and of FP8) and AWQ of a model for a folder of safetensors: matrices are asked for one at a time by whoever writes,
// and the model is walked as far as that needs (calibration.h). A layer's matrices are made together, each kept until it is taken; the next layer
// learns from what they became, and aims at what the model as it was had there (quant/calibrate/drift.h). AWQ: the matrices are scaled, then rounded with error
// feedback too, in groups as they stand; norms and rows that feed a product take the scales' inverse, so the tensors to write are not
// quite the file's.
// Before a layer, once all tensors of those before it are written, what it is fed is kept beside them, to go on from after a kill.
// Not thread-safe. Errors come from the matrices' source, as quantize has them.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/part_file.h"
#include "lab/calibration.h"
#include "lab/quantize_folder.h"
#include "quant/calibrate/awq.h"
#include "quant/calibrate/error_feedback.h"

namespace sluice::lab {

class FolderCalibration {
 public:
  // type: kGptq, kAwq or kFp8. Errors: as calibration_tokens and Calibration::make.
  static Result<std::shared_ptr<FolderCalibration>> make(const QuantizeOptions& options, const FolderType& type, std::shared_ptr<const format::WeightFile> file, int group);

  // Both hold on to `self`.
  static FolderMatrices matrices(const std::shared_ptr<FolderCalibration>& self);
  static std::vector<format::TensorEntry> tensors(const std::shared_ptr<FolderCalibration>& self);
  const char* method() const { return type_.kind == FolderType::kAwq ? "awq" : "gptq"; }
  int num_tokens() const { return calibration_->num_tokens(); }
  double seconds() const { return seconds_; }
  void finish() const { format::drop_state(state_path_); }

 private:
  // Of one site of a layer, for AWQ.
  struct Scaled { std::vector<float> scales, importance; };
  struct Sample;
  FolderCalibration(FolderType type, std::shared_ptr<const format::WeightFile> file, int group, std::string folder)
      : type_(type), file_(std::move(file)), group_(group), state_path_(std::move(folder) + "/quantize") {}

  // What GPTQ made of a matrix.
  template <class Matrix> Result<Matrix> take(std::map<std::string, Matrix>& made, const format::TensorEntry& tensor);
  Status reach(int layer);             // so that the layer's results are there
  bool whole_before(int layer) const;  // every tensor of the layers before it is written
  Status make_layer();
  Status search(int layer);
  Status search(int layer, Site site, const Sample& sample);
  Status round(const format::TensorEntry& tensor, Site site, const quant::FeedbackFactor& factor, std::vector<float>& weights);
  Result<std::vector<float>> weights(const format::TensorEntry& tensor) const;
  std::vector<const format::TensorEntry*> matrices_of(int layer, Site site) const;
  // Rows of a tensor with the layer's scales taken in: columns by the site's, rows by the inverse of those of what they feed.
  void scaled_rows(const format::TensorEntry& tensor, int64_t begin, int64_t end, float* out);
  void scale_rows(const format::TensorEntry& tensor, int64_t begin, int64_t end, float* rows, bool back) const;  // of a layer that is there; back: undone
  quant::Parallel parallel() const {
    return [this](int n, const std::function<void(int)>& fn) { calibration_->parallel(n, fn); };
  }

  FolderType type_;
  std::shared_ptr<const format::WeightFile> file_;
  int group_;
  std::string state_path_;
  uint64_t fingerprint_ = 0;
  bool begun_ = false;                 // what an earlier run left has been looked for
  std::shared_ptr<format::HfProgress> progress_ = std::make_shared<format::HfProgress>();
  std::unique_ptr<Calibration> calibration_;
  Status status_;                      // what went wrong while rows were made that cannot say so
  std::map<std::string, quant::GroupedMatrix> grouped_;
  std::map<std::string, quant::Fp8Matrix> fp8_;
  std::map<std::pair<int, Site>, Scaled> scaled_;      // AWQ
  double seconds_ = 0;
};

}  // namespace sluice::lab
