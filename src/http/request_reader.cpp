#include "http/request_reader.h"

#include <algorithm>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace sluice::http {
namespace bh = boost::beast::http;

struct RequestReader::Parser {
  bh::request_parser<bh::string_body> beast;
};

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

std::string lower_copy(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = lower(c);
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string percent_decode(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '%' && i + 2 < s.size()) {
      const int hi = hex_digit(s[i + 1]), lo = hex_digit(s[i + 2]);
      if (hi >= 0 && lo >= 0) {
        out += char(hi * 16 + lo);
        i += 2;
        continue;
      }
    }
    out += s[i];
  }
  return out;
}

const char* reason_phrase(int status) {
  if (status == 499) return "Client Closed Request";
  const auto text = bh::obsolete_reason(bh::int_to_status(unsigned(status)));
  return text.data();  // a literal in Beast
}

std::string error_body(int status, std::string_view message) {
  const char* type = status == 503 ? "service_unavailable_error" : status >= 500 ? "server_error" : "invalid_request_error";
  const char* code = status == 413   ? "\"request_too_large\""
                     : status == 408 ? "\"timeout\""
                     : status == 503 ? "\"server_is_overloaded\""
                                     : "null";
  std::string body = "{\"error\":{\"message\":\"";
  body.append(message).append("\",\"type\":\"").append(type).append("\",\"param\":null,\"code\":").append(code);
  return body + "}}";
}

RequestReader::RequestReader(size_t max_header_bytes, BodyLimits limits)
    : parser_(std::make_unique<Parser>()), max_header_bytes_(max_header_bytes), limits_(std::move(limits)), max_body_bytes_(limits_.usual) {
  parser_->beast.header_limit(uint32_t(max_header_bytes));
  parser_->beast.body_limit(boost::none);   // known once the path is: check_body_limit
}
RequestReader::~RequestReader() = default;

RequestReader::State RequestReader::fail(int status, std::string message) {
  error_status_ = status;
  error_message_ = std::move(message);
  return State::kFailed;
}

RequestReader::State RequestReader::feed(std::string& bytes) {
  auto& p = parser_->beast;
  size_t used = 0;
  State state = State::kNeedMore;
  if (!begun_)  // RFC 9112 2.2: empty lines before a request line are passed over
    while (used < bytes.size() && (bytes[used] == '\r' || bytes[used] == '\n')) ++used;
  while (used < bytes.size() && !p.is_done()) {
    begun_ = true;
    boost::system::error_code ec;
    const size_t n = p.put(boost::asio::buffer(bytes.data() + used, bytes.size() - used), ec);
    used += n;
    if (ec == bh::error::need_more) break;
    if (ec == bh::error::body_limit)
      state = fail(413, "the request body is larger than the limit of " + std::to_string(max_body_bytes_) + " bytes");
    else if (ec == bh::error::header_limit)
      state = fail(431, "the request head is larger than the limit of " + std::to_string(max_header_bytes_) + " bytes");
    else if (ec)
      state = fail(400, "malformed HTTP request: " + ec.message());
    if (ec) break;
    if (p.is_header_done() && !head_checked_) {
      state = check_head();
      if (state == State::kFailed) break;
    }
    if (n == 0) break;
  }
  bytes.erase(0, used);
  if (state == State::kFailed) return state;
  if (p.is_done()) return State::kDone;
  // Only a chunk header or trailer can stay unread this long: nobody honest sends one beyond the limit of a whole head.
  if (bytes.size() > max_header_bytes_ + (64u << 10)) return fail(400, "malformed HTTP request: bad chunk");
  return state;
}

RequestReader::State RequestReader::check_body_limit() {
  auto& p = parser_->beast;
  std::string_view path(p.get().target().data(), p.get().target().size());
  path = path.substr(0, path.find('?'));
  for (const auto& [with_limit, bytes] : limits_.of_path)
    if (path == with_limit) max_body_bytes_ = bytes;
  const auto declared = p.content_length();
  if (declared && *declared > max_body_bytes_)
    return fail(413, "the request body is larger than the limit of " + std::to_string(max_body_bytes_) + " bytes");
  p.body_limit(max_body_bytes_);
  large_ = declared ? *declared > limits_.usual : p.chunked() && max_body_bytes_ > limits_.usual;
  return State::kNeedMore;
}

RequestReader::State RequestReader::check_head() {
  head_checked_ = true;
  if (check_body_limit() == State::kFailed) return State::kFailed;
  const auto& msg = parser_->beast.get();
  if (msg.version() == 11 && msg.count(bh::field::host) != 1)
    return fail(400, "malformed HTTP request: exactly one Host header is required");
  // gzip and friends would reach the JSON parser as garbage; say so instead.
  if (const auto te = msg[bh::field::transfer_encoding]; !te.empty() && lower_copy({te.data(), te.size()}) != "chunked")
    return fail(501, "only the transfer coding chunked is supported");
  if (const auto expect = msg[bh::field::expect]; !expect.empty()) {
    if (lower_copy({expect.data(), expect.size()}) != "100-continue") return fail(417, "unknown expectation");
    if (msg.version() == 11 && !parser_->beast.is_done()) return State::kWantsContinue;
  }
  return State::kNeedMore;
}

bool RequestReader::keep_alive() const { return parser_->beast.keep_alive(); }
bool RequestReader::http_1_0() const { return parser_->beast.get().version() < 11; }

Request RequestReader::take() {
  auto msg = parser_->beast.release();
  Request out;
  const auto method = msg.method_string();
  out.method.assign(method.data(), method.size());
  std::string_view target(msg.target().data(), msg.target().size());
  if (!target.empty() && target[0] != '/')  // absolute form, as a proxy sends it
    if (const size_t scheme = target.find("://"); scheme != target.npos) {
      const size_t slash = target.find('/', scheme + 3);
      target = slash == target.npos ? std::string_view("/") : target.substr(slash);
    }
  const size_t mark = target.find('?');
  out.path = percent_decode(target.substr(0, mark));
  if (mark != target.npos) out.query = std::string(target.substr(mark + 1));
  for (const auto& field : msg) {
    const auto name = field.name_string(), value = field.value();
    out.headers.emplace_back(lower_copy({name.data(), name.size()}), std::string(value.data(), value.size()));
  }
  out.body = std::move(msg.body());
  return out;
}

}  // namespace sluice::http
