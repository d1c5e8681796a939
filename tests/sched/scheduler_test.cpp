// The scheduler's promises, one at a time, with a fake device and a clock.
#include "tests/sched/rig.h"

namespace sluice::sched {
namespace {

// Steps teach what they cost; from then on a long prompt takes no more of one than the bound leaves.
TEST(Scheduler, AStepsTimeBoundsAPromptsChunk) {
  SchedulerOptions o = options(2000, 16, 32, 512, false);
  o.step_us = 2000;
  Rig rig(o);
  for (int i = 0; i < 6; ++i) rig.send(ramp(40 + 30 * i, 500), 200);
  for (int i = 0; i < 60; ++i) rig.step();
  rig.send(ramp(8000), 2);
  for (int i = 0; i < 60; ++i) {
    rig.step();
    EXPECT_LT(rig.took, 2300) << "step " << i;
    EXPECT_GT(rig.last.num_tokens(), 6 + 8) << "the prompt moves on";
  }
  rig.finish();
}

// With room relative to the decodes, chats' gaps stay even however long the prompt is, and the prompt still moves.
TEST(Scheduler, RoomForPromptsFollowsTheDecodes) {
  SchedulerOptions o = options(2000, 16, 32, 512, false);
  o.prompt_room = 0.4;
  Rig rig(o);
  for (int i = 0; i < 8; ++i) rig.send(ramp(40 + 30 * i, 500), 300);
  for (int i = 0; i < 60; ++i) rig.step();
  const TimeUs decodes = rig.took;
  rig.send(ramp(8000), 2);
  for (int i = 0; i < 100; ++i) {
    rig.step();
    EXPECT_LT(rig.took, 1.7 * decodes) << "step " << i;  // which grow too
    EXPECT_GT(rig.last.num_tokens(), 8) << "the prompt moves on";
  }
  rig.finish();
}

// Where a step may take some time whatever its decodes take, a prompt beside few of them has all of that; beside many, the room.
TEST(Scheduler, AStepWithAPromptMayTakeSomeTime) {
  for (const int chats : {2, 24}) {
    SchedulerOptions o = options(4000, 16, 32, 512, false);
    o.prompt_room = 2;
    o.prompt_us = 4000;
    Rig rig(o);
    for (int i = 0; i < chats; ++i) rig.send(ramp(1000, 500 + i), 300);
    for (int i = 0; i < 120; ++i) rig.step();
    const TimeUs decodes = rig.took;
    rig.send(ramp(8000), 2);
    TimeUs longest = 0;
    for (int i = 0; i < 30; ++i) rig.step(), longest = std::max(longest, rig.took);
    const double most = std::max(4000.0, 3.0 * double(decodes));  // decodes grow, too
    EXPECT_GT(double(longest), 0.85 * most) << chats;
    EXPECT_LT(double(longest), 1.15 * most) << chats;
    rig.finish();
  }
}

// A prompt is cut where the step's tokens fill whole tiles, but for its end; not where most of what fits would have to wait.
TEST(Scheduler, APromptIsCutAtWholeTiles) {
  SchedulerOptions o = options(2000, 16, 32, 500, false);
  o.tile_tokens = 64;
  Rig rig(o);
  for (int i = 0; i < 5; ++i) rig.send(ramp(40, 500 + i), 200);
  rig.step();
  const Sent s = rig.send(ramp(3000), 1);
  int whole = 0;
  for (int i = 0; s.sink->finished.empty(); ++i) {
    rig.step();
    if (!s.sink->finished.empty()) break;
    EXPECT_EQ(rig.last.num_tokens(), 448) << "step " << i;  // the most that 500 hold
    ++whole;
  }
  EXPECT_EQ(whole, 3000 / (448 - 5));
  rig.finish();
  SchedulerOptions few = options(2000, 16, 32, 100, false);
  few.tile_tokens = 64;
  Rig narrow(few);
  narrow.send(ramp(1000), 1);
  EXPECT_EQ(narrow.step().num_tokens(), 100);
  narrow.finish();
}

// Prompts that come faster than the room beside decodes takes them open it, as far as they need.
TEST(Scheduler, LatePromptsGetMoreRoom) {
  SchedulerOptions o = options(4000, 16, 64, 512, false);
  o.prompt_room = 0.5;
  Rig rig(o);
  for (int i = 0; i < 8; ++i) rig.send(ramp(40 + 30 * i, 40 + 30 * i), 4000);
  for (int i = 0; i < 60; ++i) rig.step(), rig.now += rig.took;
  const TimeUs decodes = rig.took, between = 16'000;  // 400 tokens in 16 ms: alone they take half of that, with the room alone 24
  std::vector<std::pair<TimeUs, Sent>> sent;
  std::vector<TimeUs> waited;
  for (TimeUs next = rig.now; sent.size() < 100;) {
    for (; next <= rig.now; next += between) sent.emplace_back(rig.now, rig.send(ramp(400, 400), 1));
    rig.step();
    rig.now += rig.took;
    EXPECT_LT(rig.took, 6 * decodes);  // which grow too
    for (auto& [at, s] : sent)
      if (at >= 0 && !s.sink->finished.empty()) waited.push_back(rig.now - std::exchange(at, -1));
  }
  ASSERT_GT(waited.size(), 80u);
  EXPECT_LT(*std::max_element(waited.begin(), waited.end()), 200'000);
  rig.finish();
}

// More requests than places, always: what runs keeps its gaps, however long the others have waited.
TEST(Scheduler, LatePromptsOfAFullServerGetNoMoreRoom) {
  SchedulerOptions o = options(4000, 16, 16, 512, false);
  o.prompt_room = 0.5;
  Rig rig(o);
  int sent = 0, wide = 0, steps = 0;
  const auto fill = [&] {
    while (rig.scheduler.num_running() + rig.scheduler.num_waiting() < 32) {
      rig.send(ramp(400, 7 * sent++), 64);
    }
  };
  for (int i = 0; i < 4000; ++i) {
    fill();
    rig.step();
    rig.now += rig.took;
    TimeUs decodes = 200;
    for (int s = 0; s < rig.last.num_sequences(); ++s)
      if (rig.last.query_begin[s + 1] - rig.last.query_begin[s] == 1) decodes += 20 + rig.last.kv_len[s] / 16;
    if (i >= 1000 && decodes > 260) ++steps, wide += rig.took > 3 * decodes;  // predictions are not exact
  }
  EXPECT_GT(steps, 1000);
  EXPECT_LT(wide, steps / 50);
  rig.finish();
}

// One long prompt among chats that outlast it: what room it has by itself would make it take five times as long as without them.
TEST(Scheduler, ALongPromptAmongChatsGetsMoreRoomInTime) {
  SchedulerOptions o = options(4000, 16, 64, 512, false);
  o.prompt_room = 0.5;
  TimeUs took[2], decodes = 0;
  std::vector<TimeUs> gaps;
  for (const int chats : {0, 8}) {
    Rig rig(o);
    for (int i = 0; i < 40; ++i) {  // learn
      if (i % 8 == 0) rig.send(ramp(100 << i / 8, i), 12);
      if (!rig.scheduler.idle()) rig.step(), rig.now += rig.took;
    }
    rig.finish();
    for (int i = 0; i < chats; ++i) rig.send(ramp(40 + 30 * i, 500 + i), 1000);
    for (int i = 0; chats > 0 && i < 60; ++i) rig.step(), rig.now += rig.took;
    const TimeUs sent = rig.now;
    const Sent s = rig.send(ramp(6000, 9), 1);
    for (gaps.clear(); s.sink->finished.empty(); gaps.push_back(rig.took)) {
      rig.step();
      rig.now += rig.took;
    }
    took[chats > 0] = rig.now - sent;
    if (chats > 0) decodes = (rig.step(), rig.took);
    rig.finish();
  }
  EXPECT_LT(double(took[1]), 4.5 * double(took[0]));  // small chunks are thought dearer than they are
  EXPECT_GT(double(took[1]), 2.0 * double(took[0])) << "chats come first";
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LT(gaps[gaps.size() / 2], 2 * decodes);
  EXPECT_LT(gaps.back(), 3 * decodes);
}

// Batch work beside interactive work lengthens a step by little, but each of its sequences gets its turns.
TEST(Scheduler, BatchWorkFillsWhatInteractiveLeaves) {
  SchedulerOptions o = options(4000, 16, 64, 256, false);
  Rig rig(o);
  for (int i = 0; i < 200; ++i) {  // learn
    if (i % 10 == 0) rig.send(ramp(20 + i, 500), 12);
    if (!rig.scheduler.idle()) rig.step();
  }
  rig.finish();
  std::vector<Sent> batch;
  for (int i = 0; i < 24; ++i) batch.push_back(rig.send(ramp(30, i), 2000, 1, RequestClass::kBatch));
  for (int i = 0; i < 12; ++i) rig.step();
  const TimeUs alone = rig.took;
  EXPECT_EQ(rig.last.num_tokens(), 24);
  std::vector<Sent> chats;
  for (int i = 0; i < 8; ++i) chats.push_back(rig.send(ramp(10, 500 + 10 * i), 300));
  for (int i = 0; i < 10; ++i) rig.step();
  std::vector<size_t> before;
  for (const Sent& b : batch) before.push_back(b.sink->tokens[0].size());
  for (int i = 0; i < 200; ++i) {
    rig.step();
    EXPECT_LT(rig.took, alone);
    EXPECT_LT(rig.took, 1.35 * (200 + 20 * 8 + 8 * 20)) << "step " << i;
    EXPECT_GE(rig.last.num_tokens(), 9) << "all chats and at least one of the batch";
  }
  size_t least = 1000, most = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const size_t n = batch[i].sink->tokens[0].size() - before[i];
    least = std::min(least, n);
    most = std::max(most, n);
  }
  EXPECT_GE(least, 5u);
  EXPECT_LE(most - least, 2u) << "turns are shared";
  rig.finish();
}

// Two keys, one of which asks for ten times as much: what they are served stays even while both wait.
TEST(Scheduler, KeysShareEvenly) {
  Rig rig(options(400, 16, 8, 64, false));
  std::vector<Sent> sent[2];
  const auto send = [&](int key, int n) {
    for (int i = 0; i < n; ++i) {
      Sent s{std::make_shared<Recorder>(), std::make_shared<std::atomic<bool>>(false), ramp(20, key * 100 + i), 30, 1, 0, false};
      Submission sub = make(s);
      sub.share_key = uint64_t(key) + 1;
      rig.scheduler.admit(std::move(sub));
      sent[key].push_back(s);
    }
  };
  send(0, 200);  // and long before the other
  for (int i = 0; i < 50; ++i) rig.step();
  const auto served = [&](int key) {
    size_t n = 0;
    for (const Sent& s : sent[key]) n += s.sink->tokens[0].size();
    return double(n);
  };
  const double before = served(0);
  send(1, 60);
  while (sent[1].back().sink->finished.empty()) rig.step();
  EXPECT_NEAR(served(1) / (served(0) - before), 1.0, 0.15);
  rig.finish();
}

TEST(Shares, APauseEarnsNothingAndStrangersDoNotFillMemory) {
  Shares shares;
  shares.open(1);
  shares.charge(1, 1000, 500);
  shares.open(2);
  EXPECT_EQ(shares.served(2), 2000);
  shares.charge(2, 10, 0);
  EXPECT_EQ(shares.served(2), 2010);
  shares.close(2);
  shares.charge(1, 5000, 0);
  shares.open(2);
  EXPECT_EQ(shares.served(2), 7000);
  for (uint64_t k = 10; k < 200000; ++k) {
    shares.open(k);
    shares.close(k);
  }
  EXPECT_EQ(shares.num_active(), 2);
}

TEST(Scheduler, ALongPromptIsChunkedBesideDecodes) {
  Rig rig(options(200, 16, 8, 40, true));
  auto chat = rig.send(ramp(10, 500), 50);
  rig.step();
  auto big = rig.send(ramp(1000), 2);
  for (int i = 0; i < 20; ++i) {
    const BatchPlan& p = rig.step();
    EXPECT_LE(p.num_tokens(), 40);
    EXPECT_EQ(p.query_begin[1], 1) << "the chat's token goes first in every step";
  }
  rig.finish();
  EXPECT_EQ(chat.sink->tokens[0], expected_text(chat.prompt, 50, 0));
  EXPECT_EQ(big.sink->tokens[0], expected_text(big.prompt, 2, 0));
}

TEST(Scheduler, PrefixHitsSkipComputedBlocks) {
  Rig rig(options(200, 16, 8, 512, true));
  auto first = rig.send(ramp(100), 4);
  rig.finish();
  auto second = rig.send(ramp(100), 4);
  const BatchPlan& p = rig.step();
  EXPECT_EQ(p.num_tokens(), 100 - 96);
  rig.finish();
  EXPECT_EQ(first.sink->tokens[0], second.sink->tokens[0]);
  EXPECT_EQ(rig.scheduler.counters().prefix_hit_tokens, 96u);
}

TEST(Scheduler, SamplesShareTheirPromptAndCopyOnWrite) {
  Rig rig(options(200, 16, 16, 512, false));
  auto s = rig.send(ramp(90), 20, 4);
  rig.step();
  const BatchPlan& p = rig.step();
  EXPECT_EQ(p.copies.size(), 3u);       // 89 shared tokens: the sixth block is copied for each of three
  EXPECT_EQ(p.num_tokens(), 1 + 3);
  EXPECT_EQ(rig.scheduler.pool().num_held(), 5 + 4);
  rig.finish();
  for (int c = 0; c < 4; ++c) EXPECT_EQ(s.sink->tokens[c], expected_text(s.prompt, 20, c)) << c;
}

TEST(Scheduler, InteractiveDisplacesBatch) {
  Rig rig(options(20, 16, 8, 512, false));
  auto batch = rig.send(ramp(200), 50, 1, RequestClass::kBatch);
  rig.step();
  auto chat = rig.send(ramp(200, 300), 10);
  rig.step();
  EXPECT_EQ(rig.scheduler.counters().preemptions, 1u);
  EXPECT_EQ(chat.sink->tokens[0].size(), 1u) << "the chat's first token comes in its first step";
  rig.finish();
  EXPECT_EQ(batch.sink->tokens[0], expected_text(batch.prompt, 50, 0));
  EXPECT_EQ(chat.sink->tokens[0], expected_text(chat.prompt, 10, 0));
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithBothNumbers) {
  SchedulerOptions o = options(4, 16, 4, 64, true);
  o.max_context = 100;
  const Status over_context = Scheduler::fits(o, 90, 20);
  ASSERT_FALSE(over_context.ok());
  EXPECT_NE(over_context.error().message.find("110"), std::string::npos);
  EXPECT_NE(over_context.error().message.find("100"), std::string::npos);
  const Status over_cache = Scheduler::fits(o, 60, 10);
  ASSERT_FALSE(over_cache.ok());
  EXPECT_NE(over_cache.error().message.find("64"), std::string::npos);
  EXPECT_TRUE(Scheduler::fits(o, 60, 4).ok());
}

TEST(Scheduler, CancellationFreesBlocksWithinOneStep) {
  Rig rig(options(100, 16, 8, 512, false));
  auto s = rig.send(ramp(300), 100);
  rig.step();
  EXPECT_GT(rig.scheduler.pool().num_held(), 0);
  s.cancelled->store(true);
  StepOutcome outcome;
  EXPECT_EQ(rig.scheduler.reap_cancelled(1, outcome), 1);
  EXPECT_EQ(rig.scheduler.pool().num_held(), 0);
  EXPECT_TRUE(rig.scheduler.idle());
}

TEST(Scheduler, TheSameInputsGiveTheSamePlans) {
  auto hashes = [] {
    Rig rig(options(24, 16, 8, 48, true));
    std::vector<uint64_t> h;
    for (int i = 0; i < 30; ++i) rig.send(ramp(20 + i * 3, i), 10 + i);
    while (!rig.scheduler.idle()) h.push_back(rig.step().hash());
    return h;
  };
  EXPECT_EQ(hashes(), hashes());
}

}  // namespace
}  // namespace sluice::sched
