#include "lab/page.h"

namespace sluice::lab {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2430; --dim: #667085; --paper: #fbfbfa; --line: #d5d9e0; --good: #1f7a4d; --poor: #b4552d; --same: #8a94a6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --dim: #98a2b3; --paper: #14181f; --line: #333b47; --good: #4cc38a; --poor: #e8875b; --same: #78839a; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 58rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-top: 1px solid var(--line); padding-top: 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; } th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } th { color: var(--dim); font-weight: 500; }
pre { border: 1px solid var(--line); border-radius: 6px; padding: .8rem; overflow-x: auto; } .dim { color: var(--dim); } .wide { overflow-x: auto; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 13px system-ui, sans-serif; } svg .dim { fill: var(--dim); } svg line { stroke: var(--line); }
svg .good { fill: var(--good); } svg .poor { fill: var(--poor); } svg .same { fill: var(--same); } svg .range { stroke: var(--ink); }
)";

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

std::string page_head(const std::string& title) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>" + escaped(title) +
         "</title><style>" + kStyle + "</style></head><body>\n";
}

}  // namespace sluice::lab
