// One list of cases for every database: SQLite in a temporary file; PostgreSQL where SLUICE_TEST_POSTGRES names a server (see
// tests/with_postgres), in a database of its own each.
#include "store/job_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/rng.h"

namespace sluice::store {
namespace {

enum class Kind { kSqlite, kPostgres };

constexpr int64_t kNow = 1'800'000'000;
constexpr int64_t kLease = 2;

class Store : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    const std::string name = "sluice_" + std::to_string(::getpid()) + "_" + std::to_string(count_++);
    if (GetParam() == Kind::kSqlite) {
      location_ = (std::filesystem::temp_directory_path() / (name + ".db")).string();
      return;
    }
    const char* url = std::getenv("SLUICE_TEST_POSTGRES");
    if (!url) GTEST_SKIP() << "SLUICE_TEST_POSTGRES names no server";
    const std::string base(url);
    ASSERT_EQ(std::system(("psql -q '" + base + "' -c 'CREATE DATABASE " + name + "'").c_str()), 0);
    location_ = base.substr(0, base.rfind('/') + 1) + name;
  }
  void TearDown() override {
    store_.reset();
    if (GetParam() == Kind::kSqlite)
      for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(location_ + end);
  }
  std::unique_ptr<JobStore> open(Limits limits = {}) {
    auto out = open_store(location_, limits, kLease);
    EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().message);
    return out.ok() ? std::move(*out) : nullptr;
  }
  JobStore& store() {
    if (!store_) store_ = open();
    return *store_;
  }
  static File batch_file(const std::string& name = "in.jsonl") { return {{}, name, "batch", 0, kNow, 0}; }

  // A job of n lines that is in progress.
  Job started(int n, int64_t expires_s = kNow + 1000) {
    const auto file = store().create_file(batch_file(), "{}");
    Job job;
    job.model = "tiny";
    job.endpoint = "/v1/completions";
    job.completion_window = "24h";
    job.input_file_id = file->id;
    job.created_s = kNow;
    job.expires_s = expires_s;
    job.output_lifetime_s = 3600;
    const auto made = store().create_job(job);
    EXPECT_TRUE(made.ok());
    const auto claimed = store().claim_new_job("tiny");
    EXPECT_TRUE(claimed.ok() && *claimed && (*claimed)->id == made->id);
    std::vector<Line> lines;
    for (int i = 0; i < n; ++i) lines.push_back({{}, i, "line-" + std::to_string(i), "/v1/completions", "{\"prompt\":\"" + std::to_string(i) + "\"}"});
    const auto begun = store().start_job(made->id, lines, kNow + 1);
    EXPECT_TRUE(begun.ok() && *begun) << (begun.ok() ? "" : begun.error().message);
    return *store().job(made->id);
  }
  static LineResult result(const Line& line, bool ok = true) { return {ok, "{\"custom_id\":\"" + line.custom_id + "\"}", 3, 1, 5}; }
  static std::string unfinished(const Line& line, JobState) { return "unfinished " + line.custom_id; }
  std::string content(const std::string& id) {
    std::string out;
    for (int64_t i = 0;; ++i) {
      const auto chunk = store().file_chunk(id, i);
      EXPECT_TRUE(chunk.ok());
      if (!chunk.ok() || chunk->empty()) return out;
      out += *chunk;
    }
  }
  static std::set<std::string> lines_of(const std::string& text) {
    std::set<std::string> out;
    for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
      EXPECT_TRUE(out.insert(text.substr(at, end - at)).second) << "twice: " << text.substr(at, end - at);
    return out;
  }

  static inline int count_ = 0;
  std::string location_;
  std::unique_ptr<JobStore> store_;
};

TEST_P(Store, AFileIsWhatItWas) {
  std::string bytes(size_t(kChunkBytes) * 2 + 12345, '\0');
  Rng rng(1);
  for (char& c : bytes) c = char(rng.next_u32());
  const auto made = store().create_file(batch_file("ä.jsonl"), bytes);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(made->id.starts_with("file-"));
  const auto found = store().file(made->id);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->filename, "ä.jsonl");
  EXPECT_EQ(found->bytes, int64_t(bytes.size()));
  EXPECT_EQ(found->created_s, kNow);
  EXPECT_EQ(content(made->id), bytes);
  EXPECT_TRUE(store().delete_file(made->id).ok());
  EXPECT_EQ(store().file(made->id).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store().file_chunk(made->id, 0).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store().delete_file(made->id).error().code, ErrorCode::kNotFound);
  const auto empty = store().create_file(batch_file(), "");
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(content(empty->id), "");
}

TEST_P(Store, FilesAreBounded) {
  Limits limits;
  limits.file_bytes = 100;
  limits.files = 3;
  limits.all_bytes = 150;
  store_ = open(limits);
  const auto large = store().create_file(batch_file(), std::string(101, 'x'));
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(large.error().field, "file");
  EXPECT_NE(large.error().message.find("100"), std::string::npos);
  EXPECT_TRUE(store().create_file(batch_file(), std::string(100, 'x')).ok());
  EXPECT_EQ(store().create_file(batch_file(), std::string(51, 'x')).error().code, ErrorCode::kTooLarge);
  EXPECT_TRUE(store().create_file(batch_file(), "x").ok());
  EXPECT_TRUE(store().create_file(batch_file(), "x").ok());
  EXPECT_EQ(store().create_file(batch_file(), "x").error().code, ErrorCode::kTooLarge);
}

TEST_P(Store, FilesComeInPages) {
  std::vector<std::string> ids;
  for (int i = 0; i < 7; ++i) ids.push_back(store().create_file(batch_file(std::to_string(i)), "x")->id);
  std::vector<std::string> seen;
  FileQuery query;
  query.limit = 3;
  for (;;) {
    const auto page = store().files(query);
    ASSERT_TRUE(page.ok());
    for (const File& f : *page) seen.push_back(f.id);
    if (page->size() < 3) break;
    query.after = page->back().id;
  }
  EXPECT_EQ(seen, std::vector<std::string>(ids.rbegin(), ids.rend()));
  query = {};
  query.ascending = true;
  query.after = ids[4];
  EXPECT_EQ(store().files(query)->size(), 2u);
  query = {};
  query.purpose = "batch_output";
  EXPECT_TRUE(store().files(query)->empty());
  query = {};
  query.after = "file-none";
  EXPECT_EQ(store().files(query).error().code, ErrorCode::kNotFound);
}

TEST_P(Store, OddIdsAreNotFound) {
  for (const std::string& id : {std::string("x' OR '1'='1"), std::string("\xff\xfe"), std::string("a\0b", 3), std::string(1000, 'a'), std::string()}) {
    EXPECT_EQ(store().file(id).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store().job(id).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store().cancel_job(id, kNow).error().code, ErrorCode::kNotFound);
    FileQuery query;
    query.purpose = id;
    EXPECT_TRUE(store().files(query).ok());
  }
}

TEST_P(Store, FilesExpire) {
  File file = batch_file();
  file.expires_s = kNow + 10;
  const auto goes = store().create_file(file, "x"), stays = store().create_file(batch_file(), "x");
  EXPECT_TRUE(store().purge(kNow + 9).ok());
  EXPECT_TRUE(store().file(goes->id).ok());
  EXPECT_TRUE(store().purge(kNow + 10).ok());
  EXPECT_FALSE(store().file(goes->id).ok());
  EXPECT_TRUE(store().file(stays->id).ok());
}

TEST_P(Store, AJobRuns) {
  const Job job = started(5);
  EXPECT_EQ(job.state, JobState::kInProgress);
  EXPECT_EQ(job.total, 5);
  EXPECT_TRUE(store().claim_lines("other", 10)->empty());
  auto first = store().claim_lines("tiny", 2), rest = store().claim_lines("tiny", 10);
  ASSERT_TRUE(first.ok() && rest.ok());
  EXPECT_EQ(first->size(), 2u);
  EXPECT_EQ(rest->size(), 3u);
  EXPECT_TRUE(store().claim_lines("tiny", 10)->empty());
  for (const auto* lines : {&*first, &*rest})
    for (const Line& line : *lines) {
      EXPECT_EQ(line.body, "{\"prompt\":\"" + std::to_string(line.index) + "\"}");
      EXPECT_TRUE(store().ending_jobs(kNow + 5)->empty());
      EXPECT_TRUE(*store().finish_line(line, result(line, line.index != 3)));
    }
  const auto ending = store().ending_jobs(kNow + 5);
  ASSERT_EQ(ending->size(), 1u);
  EXPECT_EQ((*ending)[0].state, JobState::kFinalizing);
  const auto ended = store().finish_job(job.id, kNow + 6, unfinished);
  ASSERT_TRUE(ended.ok() && *ended) << (ended.ok() ? "" : ended.error().message);
  EXPECT_FALSE(*store().finish_job(job.id, kNow + 7, unfinished));
  const Job done = *store().job(job.id);
  EXPECT_EQ(done.state, JobState::kCompleted);
  EXPECT_EQ(done.completed, 4);
  EXPECT_EQ(done.failed, 1);
  EXPECT_EQ(done.prompt_tokens, 15);
  EXPECT_EQ(done.cached_tokens, 5);
  EXPECT_EQ(done.completion_tokens, 25);
  EXPECT_EQ(done.finalizing_s, kNow + 5);
  EXPECT_EQ(done.completed_s, kNow + 6);
  EXPECT_EQ(lines_of(content(done.output_file_id)).size(), 4u);
  EXPECT_EQ(content(done.error_file_id), "{\"custom_id\":\"line-3\"}\n");
  const auto output = store().file(done.output_file_id);
  EXPECT_EQ(output->purpose, "batch_output");
  EXPECT_EQ(output->bytes, int64_t(content(done.output_file_id).size()));
  EXPECT_EQ(output->expires_s, kNow + 6 + 3600);
  EXPECT_EQ(store().cancel_job(job.id, kNow).error().code, ErrorCode::kInvalidArgument);
}

TEST_P(Store, AResultIsRecordedOnce) {
  const Job job = started(1);
  const Line line = (*store().claim_lines("tiny", 1))[0];
  EXPECT_TRUE(*store().finish_line(line, result(line)));
  EXPECT_FALSE(*store().finish_line(line, result(line)));
  EXPECT_TRUE(store().release_line(line).ok());
  EXPECT_TRUE(store().claim_lines("tiny", 1)->empty());
  EXPECT_EQ(store().job(job.id)->completed, 1);
}

TEST_P(Store, AReleasedLineComesAgain) {
  started(1);
  const Line line = (*store().claim_lines("tiny", 1))[0];
  EXPECT_TRUE(store().release_line(line).ok());
  EXPECT_FALSE(*store().finish_line(line, result(line)));   // not this process's any more
  EXPECT_EQ(store().claim_lines("tiny", 1)->size(), 1u);
}

TEST_P(Store, ACancelledJobKeepsWhatIsDone) {
  const Job job = started(4);
  const auto lines = store().claim_lines("tiny", 2);
  EXPECT_TRUE(*store().finish_line((*lines)[0], result((*lines)[0])));
  EXPECT_EQ(store().cancel_job(job.id, kNow + 2)->state, JobState::kCancelling);
  EXPECT_EQ(store().cancel_job(job.id, kNow + 3)->cancelling_s, kNow + 2);
  EXPECT_TRUE(store().claim_lines("tiny", 2)->empty());
  ASSERT_EQ(store().ending_jobs(kNow + 4)->size(), 1u);
  EXPECT_TRUE(*store().finish_job(job.id, kNow + 4, unfinished));
  EXPECT_FALSE(*store().finish_line((*lines)[1], result((*lines)[1])));
  const Job done = *store().job(job.id);
  EXPECT_EQ(done.state, JobState::kCancelled);
  EXPECT_EQ(done.cancelled_s, kNow + 4);
  EXPECT_EQ(lines_of(content(done.output_file_id)).size(), 1u);
  EXPECT_EQ(lines_of(content(done.error_file_id)).size(), 3u);
}

TEST_P(Store, AJobExpires) {
  const Job job = started(2, kNow + 10);
  EXPECT_TRUE(store().ending_jobs(kNow + 9)->empty());
  EXPECT_FALSE(*store().finish_job(job.id, kNow + 9, unfinished));
  ASSERT_EQ(store().ending_jobs(kNow + 10)->size(), 1u);
  EXPECT_TRUE(*store().finish_job(job.id, kNow + 10, unfinished));
  const Job done = *store().job(job.id);
  EXPECT_EQ(done.state, JobState::kExpired);
  EXPECT_EQ(done.expired_s, kNow + 10);
  EXPECT_EQ(done.output_file_id, "");
  EXPECT_EQ(content(done.error_file_id), "unfinished line-0\nunfinished line-1\n");
  EXPECT_TRUE(store().purge(kNow + 9 + kEndedJobsKept).ok());
  EXPECT_TRUE(store().job(job.id).ok());
  EXPECT_TRUE(store().purge(kNow + 10 + kEndedJobsKept).ok());
  EXPECT_FALSE(store().job(job.id).ok());
}

TEST_P(Store, ABadInputFailsTheJob) {
  Job job;
  job.model = "tiny";
  job.input_file_id = "file-none";
  EXPECT_EQ(store().create_job(job).error().field, "input_file_id");
  job.input_file_id = store().create_file(batch_file(), "x")->id;
  job.expires_s = kNow + 100;
  const auto made = store().create_job(job);
  EXPECT_FALSE(*store().fail_job(made->id, "[]", kNow));     // not claimed
  ASSERT_TRUE(*store().claim_new_job("tiny"));
  EXPECT_EQ((*store().claim_new_job("tiny"))->id, made->id);  // came no further: again
  EXPECT_TRUE(*store().fail_job(made->id, "{\"data\":[]}", kNow + 1));
  EXPECT_EQ(store().job(made->id)->state, JobState::kFailed);
  EXPECT_EQ(store().job(made->id)->errors, "{\"data\":[]}");
  EXPECT_FALSE(*store().start_job(made->id, {}, kNow));
  EXPECT_FALSE(store().claim_new_job("tiny")->has_value());
}

TEST_P(Store, JobsComeInPagesAndAreBounded) {
  Limits limits;
  limits.open_jobs = 5;
  store_ = open(limits);
  Job job;
  job.model = "tiny";
  job.input_file_id = store().create_file(batch_file(), "x")->id;
  job.metadata = "{\"a\":\"b\"}";
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(store().create_job(job)->id);
  EXPECT_EQ(store().create_job(job).error().code, ErrorCode::kOverloaded);
  const auto page = store().jobs({}, 2), next = store().jobs((*page)[1].id, 10);
  EXPECT_EQ((*page)[0].id, ids[4]);
  EXPECT_EQ((*page)[0].metadata, job.metadata);
  ASSERT_EQ(next->size(), 3u);
  EXPECT_EQ((*next)[2].id, ids[0]);
  EXPECT_EQ(store().jobs("batch_none", 2).error().code, ErrorCode::kNotFound);
}

TEST_P(Store, LongResultsComeOutWhole) {
  const int n = 600;
  const Job job = started(n);
  size_t bytes = 0;
  for (const auto lines = store().claim_lines("tiny", n); const Line& line : *lines) {
    LineResult r = result(line);
    r.text = line.custom_id + std::string(size_t(3000 + 7 * line.index), char('a' + line.index % 26));
    bytes += r.text.size() + 1;
    EXPECT_TRUE(*store().finish_line(line, r));
  }
  EXPECT_EQ(store().ending_jobs(kNow)->size(), 1u);
  EXPECT_TRUE(*store().finish_job(job.id, kNow, unfinished));
  const std::string text = content(store().job(job.id)->output_file_id);
  EXPECT_EQ(text.size(), bytes);
  EXPECT_EQ(lines_of(text).size(), size_t(n));
}

TEST_P(Store, ClaimsOfAProcessThatIsGoneComeAgain) {
  const Job job = started(3);
  const auto before = store().claim_lines("tiny", 2);
  store_.reset();   // as a process that was killed: nothing is given back
  std::vector<Line> again;
  for (int i = 0; i < 100 && again.size() < 3; ++i) {
    const auto lines = store().claim_lines("tiny", 10);
    again.insert(again.end(), lines->begin(), lines->end());
    if (again.size() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(store().renew_claims().ok());
  }
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(before->size(), 2u);
  for (const Line& line : again) EXPECT_TRUE(*store().finish_line(line, result(line)));
  EXPECT_EQ(store().job(job.id)->completed, 3);
}

// A process that runs lines is killed at random places, many times over.
TEST_P(Store, KilledAtAnyPlaceNothingIsLostOrDoubled) {
  const int n = 300;
  const Job job = started(n);
  store_.reset();
  Rng rng(uint64_t(::getpid()));
  int kills = 0;
  for (bool ended = false; !ended;) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto mine = open_store(location_, {}, 1);
      if (!mine.ok()) ::_exit(3);
      for (int idle = 0; idle < 40;) {
        const auto lines = (*mine)->claim_lines("tiny", 7);
        if (!lines.ok()) ::_exit(4);
        for (const Line& line : *lines)
          if (!(*mine)->finish_line(line, result(line, line.index % 10 != 0)).ok()) ::_exit(5);
        idle = lines->empty() ? idle + 1 : 0;
        if (!lines->empty()) continue;
        const auto jobs = (*mine)->ending_jobs(kNow + 1);
        for (const Job& j : *jobs)  // who ends the job is done
          if (auto r = (*mine)->finish_job(j.id, kNow + 1, unfinished); r.ok() && *r) ::_exit(0);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      ::_exit(6);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(15'000 + rng.below(60'000) + uint32_t(kills) * 3'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      ended = true;
    } else {
      ASSERT_LT(++kills, 2000);
      ended = store().job(job.id)->state == JobState::kCompleted;   // killed behind the end
      store_.reset();
    }
  }
  const Job done = *store().job(job.id);
  EXPECT_EQ(done.state, JobState::kCompleted);
  EXPECT_EQ(done.completed, n - n / 10);
  EXPECT_EQ(done.failed, n / 10);
  EXPECT_EQ(lines_of(content(done.output_file_id)).size(), size_t(n - n / 10));
  EXPECT_EQ(lines_of(content(done.error_file_id)).size(), size_t(n / 10));
  RecordProperty("kills", kills);
}

INSTANTIATE_TEST_SUITE_P(Sqlite, Store, ::testing::Values(Kind::kSqlite));
INSTANTIATE_TEST_SUITE_P(Postgres, Store, ::testing::Values(Kind::kPostgres));

class Shared : public Store {};

TEST_P(Shared, ServersShareTheLinesOfAJob) {
  const int n = 400, servers = 4;
  const Job job = started(n);
  std::vector<std::map<int64_t, int>> ran(servers);
  std::vector<std::thread> threads;
  for (int s = 0; s < servers; ++s)
    threads.emplace_back([&, s] {
      auto mine = open();
      while (true) {
        const auto lines = mine->claim_lines("tiny", 5);
        ASSERT_TRUE(lines.ok()) << lines.error().message;
        if (lines->empty()) break;
        for (const Line& line : *lines) {
          ++ran[size_t(s)][line.index];
          const auto mine_still = mine->finish_line(line, result(line));
          EXPECT_TRUE(mine_still.ok() && *mine_still) << (mine_still.ok() ? "not its own any more" : mine_still.error().message);
        }
      }
      const auto jobs = mine->ending_jobs(kNow + 1);
      ASSERT_TRUE(jobs.ok());
      for (const Job& j : *jobs) {
        EXPECT_TRUE(mine->finish_job(j.id, kNow + 1, unfinished).ok());
      }
    });
  for (auto& t : threads) t.join();
  std::map<int64_t, int> all;
  for (const auto& one : ran)
    for (const auto& [index, times] : one) all[index] += times;
  EXPECT_EQ(all.size(), size_t(n));
  for (const auto& [index, times] : all) EXPECT_EQ(times, 1) << index;
  const Job done = *store().job(job.id);
  EXPECT_EQ(done.state, JobState::kCompleted);
  EXPECT_EQ(done.completed, n);
  EXPECT_EQ(lines_of(content(done.output_file_id)).size(), size_t(n));
}

INSTANTIATE_TEST_SUITE_P(Postgres, Shared, ::testing::Values(Kind::kPostgres));

class Alone : public Store {};

TEST_P(Alone, AFileHasOneUser) {
  store();
  const auto second = open_store(location_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another process"), std::string::npos);
}

TEST_P(Alone, WhatIsNoStoreIsSaidToBeNone) {
  FILE* f = std::fopen(location_.c_str(), "w");
  for (int i = 0; i < 1000; ++i) std::fputs("this is no database\n", f);
  std::fclose(f);
  EXPECT_FALSE(open_store(location_).ok());
  const auto nowhere = open_store("/proc/nowhere/jobs.db");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().field, "--store");
  const auto nobody = open_store("postgresql://x@127.0.0.1:1/none");
  ASSERT_FALSE(nobody.ok());
}

INSTANTIATE_TEST_SUITE_P(Sqlite, Alone, ::testing::Values(Kind::kSqlite));

}  // namespace
}  // namespace sluice::store
