// "%s" % x and "{}".format(x).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/operations.h"
#include "text/jinja/render_text.h"
#include "text/jinja/text_ops.h"

namespace sluice::text::jinja {
namespace {

constexpr int64_t kMaxWidth = 1000;

// One conversion of a % format: %(key)-08.3f
struct Spec {
  std::string key;
  bool keyed = false, left = false, zero = false, plus = false, space = false, alternate = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

class PercentFormat {
 public:
  PercentFormat(Machine& m, const Marked& format, const Value& values) : m_(m), format_(format), text_(format.text()), values_(values) {}

  Marked run() {
    size_t plain = 0;
    while ((at_ = text_.find('%', at_)) != std::string::npos) {
      out_.append_part(format_, plain, at_ - plain);
      ++at_;
      const Spec spec = parse();
      if (spec.type == '%') out_.append("%", false);
      else pad(convert(spec, spec.keyed ? item(m_, values_, Value::of(Marked(spec.key, false))) : next()), spec);
      plain = at_;
    }
    out_.append_part(format_, plain, text_.size() - plain);
    if (values_.is(Type::kList) && values_.list->tuple && used_ < values_.list->items.size()) m_.fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  int64_t number() {
    int64_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      if ((n = n * 10 + (peek() - '0')) > kMaxWidth) m_.fail("a width in a format is too large");
    return n;
  }
  Spec parse() {
    Spec spec;
    if (peek() == '(') {
      const size_t close = text_.find(')', at_);
      if (close == std::string::npos) m_.fail("incomplete format key");
      spec.keyed = true;
      spec.key = text_.substr(at_ + 1, close - at_ - 1);
      at_ = close + 1;
    }
    for (bool flags = true; flags;) {
      switch (peek()) {
        case '-': spec.left = true; break;
        case '0': spec.zero = true; break;
        case '+': spec.plus = true; break;
        case ' ': spec.space = true; break;
        case '#': spec.alternate = true; break;
        default: flags = false;
      }
      if (flags) ++at_;
    }
    spec.width = number();
    if (peek() == '.') {
      ++at_;
      spec.precision = number();
    }
    if (peek() == '\0') m_.fail("incomplete format");
    spec.type = text_[at_++];
    return spec;
  }
  const Value& next() {
    const bool tuple = values_.is(Type::kList) && values_.list->tuple;
    if (used_ >= (tuple ? values_.list->items.size() : 1)) m_.fail("not enough arguments for format string");
    ++used_;
    return tuple ? values_.list->items[used_ - 1] : values_;
  }

  Marked convert(const Spec& spec, const Value& v) {
    if (spec.type == 's' || spec.type == 'r') {
      Marked s;
      if (spec.type == 's') s = to_text(m_, v);
      else append_repr(m_, v, s);
      return spec.precision < 0 ? s : s.part(0, byte_offset(s.text(), static_cast<size_t>(spec.precision)));
    }
    if (!v.is_number()) m_.fail(std::string("%") + spec.type + " format: a number is required, not " + type_name(v));
    std::string pattern = "%";
    if (spec.plus) pattern += '+';
    else if (spec.space) pattern += ' ';
    if (spec.alternate) pattern += '#';
    if (spec.zero && !spec.left) pattern += "0" + std::to_string(spec.width);
    if (spec.precision >= 0) pattern += "." + std::to_string(spec.precision);
    std::string buffer(static_cast<size_t>(2 * kMaxWidth + 400), '\0');
    int n;
    if (spec.type == 'd' || spec.type == 'i' || spec.type == 'u' || ((spec.type == 'x' || spec.type == 'X' || spec.type == 'o') && v.is_integral() && v.as_int() >= 0)) {
      const double whole = std::trunc(v.as_real());
      if (!v.is_integral() && !(whole > -9e18 && whole < 9e18)) m_.fail("a number is out of range");
      pattern += "ll";
      pattern += spec.type;
      n = std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), static_cast<long long>(v.is_integral() ? v.as_int() : static_cast<int64_t>(whole)));
    } else if (std::string_view("feEgGF").find(spec.type) != std::string_view::npos) {
      pattern += spec.type;
      n = std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), v.as_real());
    } else {
      m_.fail(std::string("unsupported format character '") + spec.type + "'");
    }
    return Marked(std::string_view(buffer).substr(0, static_cast<size_t>(std::max(n, 0))), false);
  }
  void pad(const Marked& s, const Spec& spec) {
    const auto length = static_cast<int64_t>(count_chars(s.text()));
    const std::string fill(static_cast<size_t>(std::max<int64_t>(spec.width - length, 0)), ' ');
    if (!spec.left) out_.append(fill, false);
    out_.append(s);
    if (spec.left) out_.append(fill, false);
    if (out_.size() > kMaxText) m_.fail("a text is longer than " + std::to_string(kMaxText) + " bytes");
  }

  Machine& m_;
  const Marked& format_;
  const std::string& text_;
  const Value& values_;
  size_t at_ = 0, used_ = 0;
  Marked out_;
};

}  // namespace

Marked format_percent(Machine& m, const Marked& format, const Value& values) {
  m.charge_text(format.size());
  return PercentFormat(m, format, values).run();
}

Marked format_braces(Machine& m, const Marked& format, const Args& args) {
  m.charge_text(format.size());
  Marked out;
  size_t used = 0;
  const std::string& text = format.text();
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out.append_part(format, at, 1);
      at += 2;
    } else if (c == '}') {
      m.fail("single '}' in format string");
    } else if (c != '{') {
      const size_t end = std::min(text.find_first_of("{}", at), text.size());
      out.append_part(format, at, end - at);
      at = end;
    } else {
      const size_t close = text.find('}', at);
      if (close == std::string::npos) m.fail("single '{' in format string");
      const std::string field = text.substr(at + 1, close - at - 1);
      if (field.find_first_of(":!.[{") != std::string::npos) m.fail("format field '" + field + "' is not supported");
      const bool number = field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6;
      const size_t index = field.empty() ? used++ : number ? static_cast<size_t>(std::stoul(field)) : SIZE_MAX;
      const Value* value = args.get(index, number ? "" : std::string_view(field));
      if (value == nullptr) m.fail("format field '" + field + "' has no argument");
      out.append(to_text(m, *value));
      if (out.size() > kMaxText) m.fail("a text is longer than " + std::to_string(kMaxText) + " bytes");
      at = close + 1;
    }
  }
  return out;
}

}  // namespace sluice::text::jinja
