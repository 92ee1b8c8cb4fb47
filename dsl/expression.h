// Masks and scores as expressions: what a kernel computes of one score's position, as text.
//
//   kv_idx <= q_idx + kv_len - q_len
//   score + slopes[h] * (kv_idx - q_idx)
//   d = q_idx - kv_idx; (0 <= d) & (d < 512) & (doc[b, q_idx] == doc[b, kv_idx])
//
// The text is the expression: it is what a spec saves and what names it in a cache. Authors write
// it directly, or as a C++ lambda over tiles or a Python function, both of which are traced into it
// once.
//
// Names: score, b, h, q_idx, kv_idx, q_len, kv_len, and captured tensors, indexed by any
// expressions. Operators, loosest first: | & (comparisons) + - * / // % and unary - ~; functions
// abs, min, max, where, exp, exp2, log, log2, sqrt, tanh, sin, cos, tan, atan, erf, expm1, log1p,
// floor, round, float and int. `/` is true
// division; `//` and `%` round towards minus infinity. An integer that meets a float becomes one; a
// condition in arithmetic is 0 or 1. `name = value;` names a part. `table[wrap(i)]` counts from the
// end where i is negative, once, as Python's indices do.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/dtype.h"
#include "dsl/tile.h"

namespace flashcore {

/// A tensor that an expression reads: zero outside its shape. Lengths and strides are the caller's
/// at every launch. In a lambda, `slopes(s.head)` reads an element. Of rank 0 it is a number, i32
/// or f32, that a launch is given by value: its name alone is the value in a text.
struct Captured {
  std::string name;
  DType dtype = DType::f32;
  int rank = 1;
  /// A promise that a launch checks: neighbours along the last dimension are neighbours in memory.
  /// Kernels that look up many elements are faster for it.
  bool unit_stride = false;
  /// A promise beside it that the kernels which need it check: rows along the last dimension begin
  /// at multiples of 16 bytes. The copy engine then brings whole tiles of a dense bias.
  bool aligned_rows = false;

  template <class... Indices>
  Tile operator()(const Tile& first, const Indices&... rest) const {
    return read({Operand(first), Operand(rest)...});
  }
  [[nodiscard]] Tile read(const std::vector<Operand>& indices) const;
  bool operator==(const Captured&) const = default;
};

/// The position of a score: batch and head are scalars, query_index and key_index tiles of i32.
struct ScoreSite {
  Tile batch, head, query_index, key_index;
  Tile query_length, key_length;  ///< i32 scalars
};

struct Expression {
  std::string text;
  std::vector<Captured> tensors;  ///< in the order a launch takes them, numbers apart
  /// Whether it reads a tensor, and not only numbers.
  [[nodiscard]] bool looks_up() const;
  bool operator==(const Expression&) const = default;
};

/// Which keys a query row sees: a condition.
struct Mask : Expression {
  Mask() : Expression{"true", {}} {}
  explicit Mask(std::string text, std::vector<Captured> tensors = {})
      : Expression{std::move(text), std::move(tensors)} {}
  /// Traces `visible` once.
  explicit Mask(const std::function<Tile(const ScoreSite&)>& visible);
  [[nodiscard]] bool is_full() const { return text == "true"; }
};

/// What replaces a scaled score: a number. Empty: the score itself.
struct Score : Expression {
  Score() = default;
  explicit Score(std::string text, std::vector<Captured> tensors = {})
      : Expression{std::move(text), std::move(tensors)} {}
  explicit Score(const std::function<Tile(Tile score, const ScoreSite&)>& modify);
};

/// The score of one more key that every row sees and that has no value: it only takes its share of
/// the softmax (attention sinks). An expression of b, h and q_idx. Empty: none.
struct Sink : Expression {
  Sink() = default;
  explicit Sink(std::string text, std::vector<Captured> tensors = {})
      : Expression{std::move(text), std::move(tensors)} {}
  explicit Sink(const std::function<Tile(const ScoreSite&)>& logit);
};

/// Throw SpecError if the two capture different tensors under one name.
Mask operator&(const Mask& a, const Mask& b);
Mask operator|(const Mask& a, const Mask& b);
Mask operator~(const Mask& a);

/// Appends the expression to the program that the site's tiles belong to. Throw SpecError with the
/// place in the text.
Tile apply(const Mask& mask, const ScoreSite& site);
Tile apply(const Score& score, const Tile& value, const ScoreSite& site);
Tile apply(const Sink& sink, const ScoreSite& site);

/// Every reason the text or its tensors are wrong; empty if none.
std::vector<std::string> check(const Mask& mask);
std::vector<std::string> check(const Score& score);
std::vector<std::string> check(const Sink& sink);

/// Makes the captured tensors arguments of the program being built, those it has already excepted.
void declare_captured(ProgramBuilder& builder, const std::vector<Captured>& tensors);

/// A name for a captured tensor, as near to `wish` as the names that mean something already allow.
std::string captured_name(std::string_view wish);

}  // namespace flashcore
