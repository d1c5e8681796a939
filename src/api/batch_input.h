// BatchInput: the JSON lines of a batch, read and checked one by one. One thread. Bounds hold before anything is built.
#pragma once
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "api/endpoint.h"
#include "api/json.h"
#include "store/job_store.h"

namespace sluice::api {

constexpr size_t kMaxBatchLines = 50'000;
constexpr size_t kMaxBatchLineBytes = 8 << 20;
constexpr size_t kMaxCustomIdBytes = 512;
constexpr size_t kMaxBatchErrors = 50;         // further ones are not listed

class BatchInput {
 public:
  struct Problem {
    std::string code, message, param;
    int64_t line = 0;                          // from 1; 0: of the whole file
  };
  // endpoint: what every line's url must be; empty: any that batches may ask for.
  BatchInput(std::string endpoint, const ServedModel& model, size_t max_lines = kMaxBatchLines)
      : endpoint_(std::move(endpoint)), model_(model), max_lines_(max_lines) {}

  // Bytes of the file in order, cut anywhere.
  void add(std::string_view bytes);
  void end();
  const std::vector<Problem>& problems() const { return problems_; }
  std::vector<store::Line>& lines() { return lines_; }

 private:
  void line(std::string_view text);
  bool full() const { return problems_.size() >= kMaxBatchErrors; }
  void problem(const char* code, std::string message, std::string param = {});

  std::string endpoint_;
  const ServedModel& model_;
  size_t max_lines_;
  std::string partial_;
  bool skipping_ = false;                      // inside a line beyond the limit
  int64_t number_ = 0;
  std::vector<store::Line> lines_;
  std::vector<Problem> problems_;
  std::unordered_set<std::string> ids_;
  std::string first_model_;
};

}  // namespace sluice::api
