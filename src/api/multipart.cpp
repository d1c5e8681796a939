#include "api/multipart.h"

namespace sluice::api {
namespace {

constexpr size_t kMaxBoundaryBytes = 70;   // RFC 2046 5.1.1

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

bool starts_with_any_case(std::string_view text, std::string_view with) {
  if (text.size() < with.size()) return false;
  for (size_t i = 0; i < with.size(); ++i)
    if (lower(text[i]) != with[i]) return false;
  return true;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// The value of a header's parameter: `form-data; name="file"; filename="a.jsonl"`. False when there is none.
bool parameter(std::string_view header, std::string_view name, std::string& out) {
  size_t at = header.find(';');
  while (at < header.size()) {
    header.remove_prefix(at + 1);
    header = trim(header);
    const bool is_it = starts_with_any_case(header, name) && header.size() > name.size() && header[name.size()] == '=';
    const size_t equals = header.find('=');
    if (equals == header.npos) return false;
    std::string value;
    size_t i = equals + 1;
    if (i < header.size() && header[i] == '"') {
      for (++i; i < header.size() && header[i] != '"'; ++i) {
        if (header[i] == '\\' && i + 1 < header.size() && (header[i + 1] == '"' || header[i + 1] == '\\')) ++i;
        value += header[i];
      }
      at = header.find(';', i);
    } else {
      at = header.find(';', i);
      value = std::string(trim(header.substr(i, at == header.npos ? at : at - i)));
    }
    if (is_it) {
      out = std::move(value);
      return true;
    }
  }
  return false;
}

Status read_head(std::string_view head, Part& part) {
  bool named = false;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end == head.npos ? head.size() : end + 2);
    if (!starts_with_any_case(line, "content-disposition:")) continue;
    named = parameter(line, "name", part.name);
    parameter(line, "filename", part.filename);
  }
  if (!named) return invalid("a part of the form has no name");
  return {};
}

}  // namespace

Result<std::vector<Part>> parse_multipart(std::string_view content_type, std::string_view body) {
  std::string boundary;
  if (!starts_with_any_case(content_type, "multipart/form-data") || !parameter(content_type, "boundary", boundary))
    return invalid("Content-Type must be multipart/form-data with a boundary");
  if (boundary.empty() || boundary.size() > kMaxBoundaryBytes)
    return invalid("the form's boundary must have 1 to " + std::to_string(kMaxBoundaryBytes) + " bytes, got " + std::to_string(boundary.size()));
  const std::string first = "--" + boundary, next = "\r\n--" + boundary;
  size_t at = body.starts_with(first) ? first.size() : body.npos;
  if (at == body.npos) {   // a preamble may stand before the first part
    at = body.substr(0, kMaxPartHeadBytes).find(next);
    if (at == body.npos) return invalid("the form does not begin with its boundary");
    at += next.size();
  }
  std::vector<Part> parts;
  for (;;) {
    if (body.substr(at).starts_with("--")) return parts;
    const size_t line = body.substr(at, 256).find("\r\n");   // blanks may follow a boundary
    if (line == body.npos || !trim(body.substr(at, line)).empty()) return invalid("a boundary of the form is not followed by a line's end");
    at += line + 2;
    if (parts.size() == kMaxParts) return invalid("the form has more than the limit of " + std::to_string(kMaxParts) + " parts");
    Part part;
    // A head without any line ends at once: "\r\n" alone.
    const size_t head = body.substr(at).starts_with("\r\n") ? 0 : body.substr(at, kMaxPartHeadBytes).find("\r\n\r\n");
    if (head == body.npos) return invalid("a part's head has no end within the limit of " + std::to_string(kMaxPartHeadBytes) + " bytes");
    SLUICE_TRY(read_head(body.substr(at, head), part));
    at += head + 4;
    const size_t end = body.find(next, at);
    if (end == body.npos) return invalid("the form ends before its last boundary");
    part.content = body.substr(at, end - at);
    parts.push_back(std::move(part));
    at = end + next.size();
  }
}

}  // namespace sluice::api
