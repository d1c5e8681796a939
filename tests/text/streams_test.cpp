// Utf8Stream and StopMatcher.
#include <gtest/gtest.h>

#include <random>

#include "text/stop_matcher.h"
#include "text/utf8_stream.h"

namespace sluice::text {
namespace {

TEST(Utf8Stream, AnyCutGivesWholeCharacters) {
  const std::string text = "aé猫🦙\n😶‍🌫️z";
  for (size_t step = 1; step <= 5; ++step) {
    Utf8Stream stream;
    std::string out;
    for (size_t i = 0; i < text.size(); i += step) {
      const std::string piece = stream.push(std::string_view(text).substr(i, step));
      EXPECT_TRUE(is_valid_utf8(piece));
      out += piece;
    }
    EXPECT_EQ(stream.finish(), "");
    EXPECT_EQ(out, text);
  }
}

TEST(Utf8Stream, InvalidBytesAreReplacedAtOnceAndABrokenTailOnce) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xFF" "b"), "a\xEF\xBF\xBD" "b");
  EXPECT_EQ(stream.push("\xF0\x9F"), "");
  EXPECT_EQ(stream.push("x"), "\xEF\xBF\xBD\xEF\xBF\xBDx");
  EXPECT_EQ(stream.push("\xED\xA0"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // would be a surrogate
  EXPECT_EQ(stream.push("\xF0\x9F\xA6"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_FALSE(is_valid_utf8("\xC0\x80"));
  EXPECT_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));
  EXPECT_TRUE(is_valid_utf8("\xF4\x8F\xBF\xBF"));
}

// By definition: scan byte by byte; the first end at which some stop ends, the longest such stop.
std::string reference(const std::string& text, const std::vector<std::string>& stops, bool include, std::string& matched) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (const std::string& stop : stops)
      if (!stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0 && stop.size() > matched.size()) matched = stop;
    if (!matched.empty()) return text.substr(0, include ? end : end - matched.size());
  }
  return text;
}

TEST(StopMatcher, AgreesWithTheDefinitionOnRandomText) {
  std::mt19937 random(7);
  const auto word = [&](size_t most) {
    std::string s(random() % (most + 1), 'a');
    for (char& c : s) c = static_cast<char>('a' + random() % 2);
    return s;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 4; i > 0; --i) stops.push_back(word(5));
    const std::string text = word(20);
    const bool include = random() % 2 == 0;
    StopMatcher matcher(stops, include);
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const size_t n = 1 + random() % 3;
      out += matcher.push(std::string_view(text).substr(i, n));
      i += n;
    }
    const bool hit = matcher.matched();
    out += matcher.finish();
    std::string matched;
    const std::string want = reference(text, stops, include, matched);
    ASSERT_EQ(out, want) << text;
    ASSERT_EQ(matcher.matched_stop(), matched);
    ASSERT_EQ(hit, !matched.empty());
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBecomeAStop) {
  StopMatcher matcher({"</s>", "STOP"});
  EXPECT_EQ(matcher.push("ab</"), "ab");
  EXPECT_EQ(matcher.push("x"), "</x");
  EXPECT_EQ(matcher.push("ST"), "");
  EXPECT_EQ(matcher.push("ST"), "ST");
  EXPECT_EQ(matcher.push("OP tail"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(matcher.matched_stop(), "STOP");
}

TEST(StopMatcher, NoStopsPassEverything) {
  StopMatcher matcher({"", ""});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.finish(), "");
  StopMatcher moved = std::move(matcher);
  EXPECT_EQ(moved.push("d"), "d");
}

}  // namespace
}  // namespace sluice::text
