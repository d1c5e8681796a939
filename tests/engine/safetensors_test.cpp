// Models as folders of safetensors: the same numbers and the same words as from the GGUF file they were written from.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "format/hf_json.h"
#include "format/hf_writer.h"
#include "tests/engine/complete.h"
#include "tests/engine/tiny_model.h"

namespace sluice::testing {
namespace {

class Folder {
 public:
  explicit Folder(const std::string& name) : path_("/tmp/sluice_folder_" + std::to_string(::getpid()) + "_" + name) {}
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string operator/(const char* file) const { return path_ + "/" + file; }

 private:
  std::string path_;
};

Status convert(const std::string& from, const std::string& to, format::StDtype dtype = format::StDtype::kF32, uint64_t shard_bytes = 1 << 30) {
  SLUICE_ASSIGN(const auto file, format::open_model(from));
  format::HfWriteOptions o;
  o.dtype = dtype;
  o.shard_bytes = shard_bytes;
  return format::write_hf_folder(to, file->metadata(), file->tensors(), o);
}

void same(const lab::Completion& a, const lab::Completion& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.top, b.top);
  EXPECT_EQ(a.nll, b.nll);
  EXPECT_GT(a.nll.size(), 5u);
}

TEST(SafetensorsFolder, GivesTheLogitsOfTheFileItWasWrittenFrom) {
  for (const char* architecture : {"llama", "qwen2", "gemma3"})
    for (const char* isa : {"", "reference"}) {
      TinyShape shape;
      shape.architecture = architecture;
      shape.quantised = false;
      const TinyModel gguf(shape, 5);
      const Folder folder(architecture);
      const Status s = convert(gguf.path(), folder.path());
      ASSERT_TRUE(s.ok()) << s.error().message;
      same(complete(gguf.path(), isa), complete(folder.path(), isa));
    }
}

TEST(SafetensorsFolder, ShardsAreOneModel) {
  TinyShape shape;
  shape.quantised = false;
  const TinyModel gguf(shape, 6);
  const Folder folder("shards");
  ASSERT_TRUE(convert(gguf.path(), folder.path(), format::StDtype::kF32, 50'000).ok());
  EXPECT_TRUE(std::filesystem::exists(folder / "model.safetensors.index.json"));
  same(complete(gguf.path()), complete(folder.path()));
  // A second writing in one piece leaves nothing of the first in the way.
  ASSERT_TRUE(convert(gguf.path(), folder.path()).ok());
  same(complete(gguf.path()), complete(folder.path()));
  auto index = *format::read_json(folder / "config.json", 1 << 20);
  EXPECT_EQ(index["torch_dtype"], "float32");
}

TEST(SafetensorsFolder, QuantisedSourcesBecomeHalves) {
  const TinyModel gguf(TinyShape{}, 7);
  const Folder folder("halves");
  ASSERT_TRUE(convert(gguf.path(), folder.path(), format::StDtype::kF16).ok());
  const lab::Completion a = complete(gguf.path(), "reference"), b = complete(folder.path(), "reference");
  ASSERT_EQ(a.nll.size(), b.nll.size());
  for (size_t i = 0; i < a.nll.size(); ++i) EXPECT_NEAR(a.nll[i], b.nll[i], 2e-2);
}

TEST(SafetensorsFolder, MetadataComesBack) {
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    TinyShape shape;
    shape.architecture = architecture;
    shape.quantised = false;
    const TinyModel gguf(shape, 8);
    const Folder folder(std::string("metadata_") + architecture);
    ASSERT_TRUE(convert(gguf.path(), folder.path()).ok());
    const auto before = *format::open_model(gguf.path()), after = *format::open_model(folder.path());
    for (const auto& [key, value] : before->metadata().all()) {
      const format::Value* got = after->metadata().find(key);
      ASSERT_TRUE(got) << key;
      if (std::holds_alternative<double>(value)) EXPECT_NEAR(std::get<double>(*got), std::get<double>(value), 1e-12) << key;
      else EXPECT_EQ(*got, value) << key;
    }
    EXPECT_EQ(before->tensors().size(), after->tensors().size());
  }
}

// Changes one file of a folder that loads, and gives what the loader then says.
std::string refusal(const Folder& folder, const char* file, const std::function<void(format::Json&)>& change) {
  const format::Json before = *format::read_json(folder / file, 1 << 24);
  format::Json after = before;
  change(after);
  EXPECT_TRUE(format::write_json(folder / file, after).ok());
  const auto r = format::open_model(folder.path());
  EXPECT_TRUE(format::write_json(folder / file, before).ok());
  return r.ok() ? "" : r.error().message;
}

TEST(SafetensorsFolder, WhatCannotRunIsRefusedByName) {
  TinyShape shape;
  shape.quantised = false;
  const TinyModel gguf(shape, 9);
  const Folder folder("refusals");
  ASSERT_TRUE(convert(gguf.path(), folder.path(), format::StDtype::kF32, 50'000).ok());
  using format::Json;
  const std::tuple<const char*, std::function<void(Json&)>, const char*> cases[] = {
      {"config.json", [](Json&) {}, ""},
      {"config.json", [](Json& j) { j["model_type"] = "mamba"; }, "model_type: 'mamba'"},
      {"config.json", [](Json& j) { j.erase("hidden_size"); }, "hidden_size: missing"},
      {"config.json", [](Json& j) { j["num_hidden_layers"] = 1ull << 60; }, "num_hidden_layers"},
      {"config.json", [](Json& j) { j["num_hidden_layers"] = 5000; }, "block_count: 5000 is outside"},
      {"config.json", [](Json& j) { j["num_hidden_layers"] = 1; }, "model.layers.1."},
      {"config.json", [](Json& j) { j["head_dim"] = 31; }, "no whole heads"},
      {"config.json", [](Json& j) { j["hidden_act"] = "relu"; }, "hidden_act: 'relu'"},
      {"config.json", [](Json& j) { j["sliding_window"] = 16; }, "sliding_window"},
      {"config.json", [](Json& j) { j["mlp_bias"] = true; }, "mlp_bias"},
      {"config.json", [](Json& j) { j["tie_word_embeddings"] = false; }, "lm_head.weight: the tensor is missing"},
      {"config.json", [](Json& j) { j["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2}}; }, "'yarn'"},
      {"tokenizer.json", [](Json& j) { j["model"]["type"] = "Unigram"; }, "model.type: 'Unigram'"},
      {"tokenizer.json", [](Json& j) { j["model"].erase("vocab"); }, "model.vocab"},
      {"tokenizer.json", [](Json& j) { j["model"]["vocab"]["t"] = -4; }, "id -4"},
      {"tokenizer.json", [](Json& j) { j["model"]["merges"] = {"t"}; }, "model.merges: entry 0"},
      {"tokenizer.json", [](Json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }, "normalizer: 'Lowercase'"},
      {"tokenizer.json", [](Json& j) { j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "x+"}}}}; }, "'x+'"},
      {"model.safetensors.index.json", [](Json& j) { j["weight_map"]["model.norm.weight"] = "../x"; }, "no name of a file"},
      {"model.safetensors.index.json", [](Json& j) { j["weight_map"]["more"] = j["weight_map"]["model.norm.weight"]; }, "more: the index names it"},
      {"model.safetensors.index.json", [](Json& j) { j.erase("weight_map"); }, "weight_map is missing"},
  };
  for (const auto& [file, change, wanted] : cases) {
    const std::string got = refusal(folder, file, change);
    if (*wanted == '\0') EXPECT_EQ(got, "");
    else EXPECT_NE(got.find(wanted), std::string::npos) << "'" << got << "', wanted " << wanted;
  }
  EXPECT_FALSE(format::open_model("/tmp").ok());
}

TEST(SafetensorsFolder, Llama3RotationIsMadeOfItsConfiguration) {
  TinyShape shape;
  shape.quantised = false;
  const TinyModel gguf(shape, 10);
  const Folder folder("llama3"), again("llama3_again");
  ASSERT_TRUE(convert(gguf.path(), folder.path()).ok());
  format::Json config = *format::read_json(folder / "config.json", 1 << 20);
  config["rope_theta"] = 500000.0;
  config["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  ASSERT_TRUE(format::write_json(folder / "config.json", config).ok());
  const auto file = *format::open_model(folder.path());
  const format::TensorEntry* t = file->find("rope_freqs.weight");
  ASSERT_TRUE(t);
  std::vector<float> factors(size_t(t->elements()));
  format::decode_rows(*t, 0, 1, factors.data());
  ASSERT_EQ(factors.size(), 16u);
  EXPECT_EQ(factors.front(), 1.0f);  // a wavelength of 6 tokens
  EXPECT_EQ(factors.back(), 8.0f);   // of 2 million
  // Wavelength 2 pi 500000^(9/16) = 10,091: 0.8118 turns in 8,192 tokens, below 1. One step earlier 4,444: 1.8434 turns, of 1 to 4.
  EXPECT_EQ(factors[9], 8.0f);
  EXPECT_NEAR(factors[8], 1 / ((1 - 0.28113) / 8 + 0.28113), 1e-3);
  ASSERT_TRUE(convert(folder.path(), again.path()).ok());
  same(complete(folder.path()), complete(again.path()));
}

}  // namespace
}  // namespace sluice::testing
