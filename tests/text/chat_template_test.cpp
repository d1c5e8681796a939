// ChatTemplate against jinja2 (tests/data/templates, made by tools/make_template_goldens.py), its bounds, and origin marks.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

namespace sluice::text {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string repeat(std::string_view s, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += s;
  return out;
}

Result<std::string> render(const std::string& source, const ordered_json& context) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.error();
  auto spans = (*parsed)->render(context);
  if (!spans.ok()) return spans.error();
  return join_spans(*spans);
}

void check_golden_file(const fs::path& path) {
  std::ifstream in(path);
  const auto file = ordered_json::parse(in);
  for (const auto& test : file["cases"]) {
    const std::string name = path.filename().string() + ": " + test["name"].get<std::string>();
    const auto got = render(test["template"].get<std::string>(), test["context"]);
    if (test.contains("output")) {
      EXPECT_TRUE(got.ok()) << name << ": " << (got.ok() ? "" : got.error().message);
      if (got.ok()) {
        EXPECT_EQ(*got, test["output"].get<std::string>()) << name;
      }
      continue;
    }
    EXPECT_FALSE(got.ok()) << name << " gave " << (got.ok() ? *got : "");
    if (got.ok()) continue;
    if (test["error"].is_string()) {
      EXPECT_EQ(got.error().message, test["error"].get<std::string>()) << name;
      EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
    } else {
      EXPECT_NE(got.error().message.find("line "), std::string::npos) << name;
      EXPECT_EQ(got.error().message.find('\n'), std::string::npos) << name;
    }
  }
}

TEST(ChatTemplateGolden, MatchesJinja) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SLUICE_TEST_DATA) / "templates")) {
    if (entry.path().extension() != ".json") continue;
    check_golden_file(entry.path());
    ++files;
  }
  EXPECT_GE(files, 8u);
}

// Manual check of templates that cannot be committed: golden files in the folder SLUICE_TEMPLATE_GOLDENS.
TEST(ChatTemplateGolden, MatchesJinjaOnMoreTemplates) {
  const char* folder = std::getenv("SLUICE_TEMPLATE_GOLDENS");
  if (folder == nullptr) {
    std::cout << "SLUICE_TEMPLATE_GOLDENS is not set: nothing more to check\n";
    return;
  }
  for (const auto& entry : fs::directory_iterator(folder)) check_golden_file(entry.path());
}

TEST(ChatTemplateErrors, SyntaxErrorsNameTheLine) {
  const auto parsed = ChatTemplate::parse("a\nb\n{% if x %}\n{{ 1 +* 2 }}");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ErrorCode::kBadFile);
  EXPECT_NE(parsed.error().message.find("line 4"), std::string::npos) << parsed.error().message;
}

TEST(ChatTemplateErrors, RuntimeErrorsNameTheLine) {
  const auto got = render("a\n\n{{ missing.field }}", ordered_json::object());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(got.error().message.find("line 3"), std::string::npos) << got.error().message;
}

TEST(ChatTemplateErrors, RaiseExceptionIsTheWholeMessageOnOneLine) {
  const auto got = render("{{ raise_exception('no\\nsystem') }}", ordered_json::object());
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message, "no system");
}

TEST(ChatTemplateErrors, ContextMustBeAnObject) { EXPECT_FALSE(render("x", ordered_json::array()).ok()); }

TEST(ChatTemplateBounds, DeepSyntaxFailsCleanly) {
  const size_t n = 100'000;
  for (const std::string& source :
       {"{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}", "{{ " + repeat("[", n), "{{ " + repeat("not ", n) + "1 }}", "{{ " + repeat("-", n) + "1 }}",
        "{{ 1" + repeat(" + 1", n) + " }}", "{{ x" + repeat(".a", n) + " }}", "{{ x" + repeat("|trim", n) + " }}", "{{ f" + repeat("(", n),
        "{{ " + repeat("{1:", n), repeat("{% if x %}", n), repeat("{% for x in y %}", n), "{% set " + repeat("(", n), "{{ " + repeat("1 if ", n),
        "{{ " + repeat("1 if 1 else ", n) + "1 }}", "{{ x" + repeat(" is defined", n) + " }}", "{{ 1" + repeat("()", n) + " }}"}) {
    const auto parsed = ChatTemplate::parse(source);
    EXPECT_FALSE(parsed.ok()) << source.substr(0, 20);
  }
  EXPECT_TRUE(render("{{ " + repeat("(", 50) + "1" + repeat(")", 50) + " }}", ordered_json::object()).ok());
}

TEST(ChatTemplateBounds, DeepDataFailsCleanly) {
  ordered_json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = ordered_json::array({std::move(deep)});
  EXPECT_FALSE(render("{{ messages }}", {{"messages", deep}}).ok());
  for (const char* source : {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
                             "{% set l = [] %}{% set k = [] %}{% set _ = l.append(l) %}{% set _ = k.append(k) %}{{ l == k }}",
                             "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                             "{% macro f(a) %}{% for x in [1] %}{% if true %}{{ (f((a))) }}{% endif %}{% endfor %}{% endmacro %}{{ f(1) }}"})
    EXPECT_FALSE(render(source, ordered_json::object()).ok()) << source;
}

TEST(ChatTemplateBounds, BombsRunOutOfSteps) {
  for (const char* source :
       {"{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", "{{ range(10 ** 9) }}", "{{ 'x' * 10 ** 9 }}", "{{ [0] * 10 ** 9 }}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "{% for a in range(90000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}", "{{ ('a\n' * 100000) | indent(1000) }}", "{{ '%999999999d' % 1 }}",
        "{% set s = 'x' * 1000000 %}{% for a in range(90000) %}{% set l = s | list %}{% endfor %}", "{{ 9223372036854775807 + 1 }}", "{{ 10 ** 1000 }}",
        "{{ ('x' * 10000).join(range(90000) | map('string') | list) }}"}) {
    const auto got = render(source, ordered_json::object());
    ASSERT_FALSE(got.ok()) << source;
    EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
  }
}

// The characters of a render that count as the template's own.
std::string trusted_part(const std::string& source, const ordered_json& context) {
  auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok());
  auto spans = (*parsed)->render(context);
  EXPECT_TRUE(spans.ok()) << (spans.ok() ? "" : spans.error().message);
  std::string out;
  for (const auto& span : *spans) out += span.trusted ? span.text : repeat("_", span.text.size());
  return out;
}

TEST(ChatTemplateOrigin, MarksFollowTheCharacters) {
  const ordered_json context = {{"messages", {{{"role", "user"}, {"content", "  Hi, yo "}}}}, {"bos_token", "<s>"}, {"tools", {{{"k", "v"}}}}, {"extra", "zz"}};
  const std::pair<const char*, const char*> cases[] = {
      {"{{ bos_token }}[{{ messages[0].content }}]", "<s>[_________]"},
      {"{{ '<' + messages[0].content | trim + '>' }}", "<______>"},
      {"{{ '<' ~ messages[0].content.strip() ~ '>' }}", "<______>"},
      {"{{ messages[0].content.split(',')[1] }}|", "____|"},
      {"{{ ('ab' ~ messages[0].content ~ 'cd')[1:5] }}", "b___"},
      {"{{ ('ab' ~ messages[0].content.strip())[::-1] }}", "______ba"},
      {"{{ messages[0].content | replace('Hi', 'HELLO') }}", "__HELLO_____"},
      {"{{ 'a-b' | replace('-', messages[0].role) }}", "a____b"},
      {"{{ messages[0].content | upper }}!", "_________!"},
      {"{{ tools | tojson }}", "____________"},
      {"{% set x %}a{{ messages[0].role }}b{% endset %}{{ x }}", "a____b"},
      {"{% macro m(r) %}<{{ r }}>{% endmacro %}{{ m(messages[0].role) }}", "<____>"},
      {"{% filter upper %}x{{ messages[0].role }}y{% endfilter %}", "X____Y"},
      {"{% for k, v in tools[0].items() %}{{ k }}={{ v }}{% endfor %}", "_=_"},
      {"{{ '%s:%s' % (messages[0].role, 'x') }}", "____:x"},
      {"{{ '{}:{}'.format(messages[0].role, 'x') }}", "____:x"},
      {"{{ ['a', messages[0].role] | join('-') }}", "a-____"},
      {"{{ messages[0].role | indent(2, true) }}", "  ____"},
      {"{{ extra }}", "__"},
      {"{{ messages[0].role | list | join }}", "____"},
      {"{{ messages[0] }}", "________________________________________"},
  };
  for (const auto& [source, want] : cases) EXPECT_EQ(trusted_part(source, context), want) << source;
}

}  // namespace
}  // namespace sluice::text
