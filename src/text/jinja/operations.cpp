// Truth, comparison, arithmetic.
#include "text/jinja/operations.h"

#include <cmath>

#include "text/jinja/render_text.h"

namespace sluice::text::jinja {
namespace {

[[noreturn]] void fail_undefined(Machine& m, const Value& v) {
  m.fail("'" + (v.name != nullptr ? *v.name : std::string("value")) + "' is undefined");
}

const char* symbol(Op op) {
  switch (op) {
    case Op::kAdd: return "+";
    case Op::kSub: return "-";
    case Op::kMul: return "*";
    case Op::kDiv: return "/";
    case Op::kFloorDiv: return "//";
    case Op::kMod: return "%";
    default: return "**";
  }
}

Value integer_power(Machine& m, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) m.fail("0 cannot be raised to a negative power");
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  bool overflow = false;
  while (exponent > 0 && !overflow) {
    if (exponent & 1) overflow = __builtin_mul_overflow(result, base, &result);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow = true;
  }
  if (overflow) m.fail("an integer is out of range");
  return Value::of(result);
}

Value integers(Machine& m, Op op, int64_t a, int64_t b) {
  if (op == Op::kPow) return integer_power(m, a, b);
  if ((op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod) && b == 0) m.fail("division by zero");
  if (op == Op::kDiv) return Value::of(static_cast<double>(a) / static_cast<double>(b));
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd: overflow = __builtin_add_overflow(a, b, &result); break;
    case Op::kSub: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Op::kMul: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Op::kFloorDiv:
      overflow = a == INT64_MIN && b == -1;
      if (!overflow) result = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
      break;
    default:
      result = b == -1 ? 0 : a % b;
      if (result != 0 && (result < 0) != (b < 0)) result += b;
  }
  if (overflow) m.fail("an integer is out of range");
  return Value::of(result);
}

Value reals(Machine& m, Op op, double a, double b) {
  if ((op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod) && b == 0) m.fail("division by zero");
  switch (op) {
    case Op::kAdd: return Value::of(a + b);
    case Op::kSub: return Value::of(a - b);
    case Op::kMul: return Value::of(a * b);
    case Op::kDiv: return Value::of(a / b);
    case Op::kFloorDiv: return Value::of(std::floor(a / b));
    case Op::kMod: {
      double result = std::fmod(a, b);
      if (result != 0 && (result < 0) != (b < 0)) result += b;
      return Value::of(result);
    }
    default: {
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) m.fail("a power is not a real number");
      return Value::of(result);
    }
  }
}

Value repeat(Machine& m, const Value& v, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const size_t size = v.is(Type::kString) ? v.text().size() : v.list->items.size();
  if (size != 0 && static_cast<uint64_t>(times) > kMaxText / size) m.fail("a repetition is too long");
  m.charge(size == 0 ? 1 : static_cast<uint64_t>(times) * (v.is(Type::kList) ? size : 1));
  if (v.is(Type::kString)) {
    Marked out;
    for (int64_t i = 0; size != 0 && i < times; ++i) out.append(*v.string);
    return m.text(std::move(out));
  }
  std::vector<Value> items;
  for (int64_t i = 0; size != 0 && i < times; ++i) items.insert(items.end(), v.list->items.begin(), v.list->items.end());
  return m.list(std::move(items), v.list->tuple);
}

}  // namespace

bool truthy(const Value& v) {
  switch (v.type) {
    case Type::kUndefined: case Type::kNone: return false;
    case Type::kBool: return v.boolean;
    case Type::kInt: return v.integer != 0;
    case Type::kFloat: return v.real != 0;
    case Type::kString: return !v.text().empty();
    case Type::kList: return !v.list->items.empty();
    case Type::kDict: return !v.dict->entries.empty();
    default: return true;
  }
}

bool equal(Machine& m, const Value& a, const Value& b, int depth) {
  m.check_depth(depth);
  m.charge();
  if (a.is_number() && b.is_number())
    return a.is_integral() && b.is_integral() ? a.as_int() == b.as_int() : a.as_real() == b.as_real();
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::kString: m.charge_text(a.text().size()); return a.text() == b.text();
    case Type::kList: {
      const auto& x = a.list->items;
      const auto& y = b.list->items;
      if (x.size() != y.size() || a.list->tuple != b.list->tuple) return false;
      for (size_t i = 0; i < x.size(); ++i)
        if (!equal(m, x[i], y[i], depth + 1)) return false;
      return true;
    }
    case Type::kDict:
      if (a.dict->entries.size() != b.dict->entries.size()) return false;
      for (const auto& [key, value] : a.dict->entries) {
        const Value* other = b.dict->find(canonical_key(m, key));
        if (other == nullptr || !equal(m, value, *other, depth + 1)) return false;
      }
      return true;
    case Type::kUndefined: case Type::kNone: return true;
    case Type::kNamespace: return a.dict == b.dict;
    case Type::kMacro: return a.macro == b.macro;
    case Type::kLoop: return a.loop == b.loop;
    case Type::kGlobal: return a.global == b.global;
    default: return a.method == b.method;
  }
}

int order(Machine& m, const Value& a, const Value& b, int depth) {
  m.check_depth(depth);
  m.charge();
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  if (a.is_number() && b.is_number()) return a.as_real() < b.as_real() ? -1 : a.as_real() > b.as_real();
  if (a.is(Type::kString) && b.is(Type::kString)) {
    m.charge_text(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());  // UTF-8 keeps the order of code points
  }
  if (a.is(Type::kList) && b.is(Type::kList) && a.list->tuple == b.list->tuple) {
    const auto& x = a.list->items;
    const auto& y = b.list->items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(m, x[i], y[i], depth + 1)) return order(m, x[i], y[i], depth + 1);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  if (a.is(Type::kUndefined)) fail_undefined(m, a);
  if (b.is(Type::kUndefined)) fail_undefined(m, b);
  m.fail("no order between '" + std::string(type_name(a)) + "' and '" + type_name(b) + "'");
}

bool contains(Machine& m, const Value& container, const Value& item) {
  switch (container.type) {
    case Type::kString:
      if (!item.is(Type::kString)) m.fail("'in <string>' requires a string as left operand, not " + std::string(type_name(item)));
      m.charge_text(container.text().size());
      return container.text().find(item.text()) != std::string::npos;
    case Type::kList:
      for (const Value& v : container.list->items)
        if (equal(m, v, item)) return true;
      return false;
    case Type::kDict: return container.dict->find(canonical_key(m, item)) != nullptr;
    case Type::kUndefined: return false;
    default: m.fail("'" + std::string(type_name(container)) + "' cannot be searched with 'in'");
  }
}

Value binary(Machine& m, Op op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integers(m, op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return reals(m, op, a.as_real(), b.as_real());
  if (op == Op::kAdd && a.is(Type::kString) && b.is(Type::kString)) {
    if (a.text().size() + b.text().size() > kMaxText) m.fail("a text is longer than " + std::to_string(kMaxText) + " bytes");
    Marked joined(*a.string);
    joined.append(*b.string);
    return m.text(std::move(joined));
  }
  if (op == Op::kAdd && a.is(Type::kList) && b.is(Type::kList) && a.list->tuple == b.list->tuple) {
    m.charge(a.list->items.size() + b.list->items.size());
    std::vector<Value> items = a.list->items;
    items.insert(items.end(), b.list->items.begin(), b.list->items.end());
    return m.list(std::move(items), a.list->tuple);
  }
  if (op == Op::kMod && a.is(Type::kString)) return m.text(format_percent(m, *a.string, b));
  const auto sequence = [](const Value& v) { return v.is(Type::kString) || v.is(Type::kList); };
  if (op == Op::kMul && sequence(a) && b.is_integral()) return repeat(m, a, b.as_int());
  if (op == Op::kMul && sequence(b) && a.is_integral()) return repeat(m, b, a.as_int());
  if (a.is(Type::kUndefined)) fail_undefined(m, a);
  if (b.is(Type::kUndefined)) fail_undefined(m, b);
  if (op == Op::kAdd && a.is(Type::kString)) m.fail("can only concatenate str (not \"" + std::string(type_name(b)) + "\") to str");
  m.fail("unsupported operand types for " + std::string(symbol(op)) + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

Value negate(Machine& m, const Value& v) {
  if (v.is(Type::kFloat)) return Value::of(-v.real);
  if (v.is_integral()) return integers(m, Op::kSub, 0, v.as_int());
  if (v.is(Type::kUndefined)) fail_undefined(m, v);
  m.fail("bad operand type for unary -: '" + std::string(type_name(v)) + "'");
}

}  // namespace sluice::text::jinja
