// A model's greedy words after one prompt, with the logits and the prompt's scores: what two forms of one model are compared by.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "lab/completion.h"
#include "lab/loaded_model.h"

namespace sluice::testing {

inline lab::Completion complete(const std::string& model, const std::string& isa = "") {
  lab::LoadOptions o;
  o.model = model;
  o.isa = isa;
  o.threads = 1;
  o.kv_memory = "4MiB";
  auto loaded = lab::load_model(o, nullptr);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  if (!loaded.ok()) return {};
  auto executor = loaded->make_executor();
  lab::CompletionRunner runner(*loaded, std::move(*executor));
  sched::Submission s;
  s.prompt = loaded->tokenizer->encode("the quick brown fox & the th", {});
  s.max_tokens = 8;
  s.ignore_eos = true;
  auto done = runner.run(std::move(s), true, nullptr);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return done.ok() ? *done : lab::Completion{};
}

}  // namespace sluice::testing
