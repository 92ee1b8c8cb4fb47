#include "runtime/reference/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/reference/formats.h"
#include "runtime/reference/walk.h"

namespace flashcore {
namespace {

using ir::OpCode;

template <class Function>
void map(std::span<const TypedTile> operands, const ir::TileType& type, TileValue& result,
         Function function) {
  const Walk a(operands[0], type), b(operands[operands.size() > 1 ? 1 : 0], type),
      c(operands[operands.size() > 2 ? 2 : 0], type);
  double* out = result.data.data();
  for (std::int64_t i = 0; i < result.outer; ++i)
    for (std::int64_t j = 0; j < result.inner; ++j)
      *out++ = function(a.at(i, j), b.at(i, j), c.at(i, j));
}

double floor_div(double a, double b) { return b == 0 ? 0 : std::floor(a / b); }

void apply(OpCode code, std::span<const TypedTile> operands, const ir::TileType& type,
           bool integers, TileValue& result) {
  auto each = [&](auto function) { map(operands, type, result, function); };
  switch (code) {
    case OpCode::neg:
      return each([](double a, double, double) { return -a; });
    case OpCode::abs:
      return each([](double a, double, double) { return std::abs(a); });
    case OpCode::exp:
      return each([](double a, double, double) { return std::exp(a); });
    case OpCode::exp2:
      return each([](double a, double, double) { return std::exp2(a); });
    case OpCode::log:
      return each([](double a, double, double) { return std::log(a); });
    case OpCode::log2:
      return each([](double a, double, double) { return std::log2(a); });
    case OpCode::sqrt:
      return each([](double a, double, double) { return std::sqrt(a); });
    case OpCode::tanh:
      return each([](double a, double, double) { return std::tanh(a); });
    case OpCode::sin:
      return each([](double a, double, double) { return std::sin(a); });
    case OpCode::cos:
      return each([](double a, double, double) { return std::cos(a); });
    case OpCode::tan:
      return each([](double a, double, double) { return std::tan(a); });
    case OpCode::atan:
      return each([](double a, double, double) { return std::atan(a); });
    case OpCode::erf:
      return each([](double a, double, double) { return std::erf(a); });
    case OpCode::expm1:
      return each([](double a, double, double) { return std::expm1(a); });
    case OpCode::log1p:
      return each([](double a, double, double) { return std::log1p(a); });
    case OpCode::round:
      return each([](double a, double, double) { return std::nearbyint(a); });
    case OpCode::floor:
      return each([](double a, double, double) { return std::floor(a); });
    case OpCode::reciprocal:
      return each([](double a, double, double) { return 1 / a; });
    case OpCode::cast:
      return each([](double a, double, double) { return a; });
    case OpCode::logical_not:
      return each([](double a, double, double) { return a == 0; });
    case OpCode::add:
      return each([](double a, double b, double) { return a + b; });
    case OpCode::sub:
      return each([](double a, double b, double) { return a - b; });
    case OpCode::mul:
      return each([](double a, double b, double) { return a * b; });
    case OpCode::div:
      if (integers) return each([](double a, double b, double) { return floor_div(a, b); });
      return each([](double a, double b, double) { return a / b; });
    case OpCode::mod:
      return each([](double a, double b, double) { return a - b * floor_div(a, b); });
    case OpCode::quotient:
      return each([](double a, double b, double) { return std::trunc(a / b); });
    case OpCode::mul_rn:
      return each([](double a, double b, double) { return a * b; });
    case OpCode::limit_scale:
      return each([](double a, double b, double) {
        return b == 0 || !std::isfinite(b) ? a : std::fmin(a, std::ldexp(1.0, 27 - std::ilogb(b)));
      });
    case OpCode::min:
      return each([](double a, double b, double) { return std::fmin(a, b); });
    case OpCode::max:
      return each([](double a, double b, double) { return std::fmax(a, b); });
    case OpCode::lt:
      return each([](double a, double b, double) { return a < b; });
    case OpCode::le:
      return each([](double a, double b, double) { return a <= b; });
    case OpCode::gt:
      return each([](double a, double b, double) { return a > b; });
    case OpCode::ge:
      return each([](double a, double b, double) { return a >= b; });
    case OpCode::eq:
      return each([](double a, double b, double) { return a == b; });
    case OpCode::ne:
      return each([](double a, double b, double) { return a != b; });
    case OpCode::logical_and:
      return each([](double a, double b, double) { return a != 0 && b != 0; });
    case OpCode::logical_or:
      return each([](double a, double b, double) { return a != 0 || b != 0; });
    case OpCode::where:
      return each([](double a, double b, double c) { return a != 0 ? b : c; });
    case OpCode::fma:
      return each([](double a, double b, double c) { return std::fma(a, b, c); });
    default:
      throw InternalError("the reference has no elementwise " + std::string(name_of(code)));
  }
}

template <class Real>
TileValue dot_in(const TileValue& a, const TileValue& b, const TileValue* accumulator) {
  const std::vector<Real> right(b.data.begin(), b.data.end());
  const std::int64_t m = a.outer, k = a.inner, n = b.inner;
  TileValue result(m, n);
  std::vector<Real> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j)
      row[j] = accumulator ? static_cast<Real>(accumulator->data[i * n + j]) : Real{0};
    for (std::int64_t l = 0; l < k; ++l) {
      const auto left = static_cast<Real>(a.data[i * k + l]);
      const Real* from = right.data() + l * n;
      for (std::int64_t j = 0; j < n; ++j) row[j] += left * from[j];
    }
    std::copy(row.begin(), row.end(), result.data.begin() + i * n);
  }
  return result;
}

double start_of(OpCode code, std::int64_t length) {
  if (code == OpCode::reduce_sum) return 0;
  if (length) return std::numeric_limits<double>::quiet_NaN();  // gives way to every number
  const double infinity = std::numeric_limits<double>::infinity();
  return code == OpCode::reduce_max ? -infinity : infinity;
}

}  // namespace

void elementwise(OpCode code, std::span<const TypedTile> operands, const ir::TileType& type,
                 Precision precision, TileValue& result) {
  apply(code, operands, type, operands[0].type->dtype == DType::i32, result);
  const bool to_integer = code == OpCode::cast && type.dtype == DType::i32;
  if (to_integer || (precision == Precision::storage && is_float(type.dtype)))
    for (double& element : result.data) element = round_to(type.dtype, element);
}

TileValue reduce(OpCode code, const TileValue& tile, int along, Precision precision) {
  const bool first = along == 0;
  const std::int64_t length = first ? tile.outer : tile.inner;
  TileValue result(first ? tile.inner : tile.outer, 1, start_of(code, length));
  const bool in_f32 = precision == Precision::storage;
  const double* element = tile.data.data();
  for (std::int64_t i = 0; i < tile.outer; ++i)
    for (std::int64_t j = 0; j < tile.inner; ++j) {
      double& total = result.data[static_cast<std::size_t>(first ? j : i)];
      const double x = *element++;
      if (code == OpCode::reduce_max)
        total = std::fmax(total, x);
      else if (code == OpCode::reduce_min)
        total = std::fmin(total, x);
      else
        total = in_f32 ? static_cast<float>(total + x) : total + x;
    }
  return result;
}

TileValue transpose(const TileValue& tile) {
  TileValue result(tile.inner, tile.outer);
  for (std::int64_t i = 0; i < tile.outer; ++i)
    for (std::int64_t j = 0; j < tile.inner; ++j)
      result.data[j * tile.outer + i] = tile.data[i * tile.inner + j];
  return result;
}

TileValue dot(const TileValue& a, const TileValue& b, const TileValue* accumulator,
              Precision precision) {
  return precision == Precision::storage ? dot_in<float>(a, b, accumulator)
                                         : dot_in<double>(a, b, accumulator);
}

}  // namespace flashcore
