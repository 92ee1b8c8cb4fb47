// Random masks, scores and sinks: an expression is drawn as a tree over the whole language, printed
// as the text that a spec holds, and evaluated here in double precision by its own few rules, so
// that a mistake of the reader, of the compiler or of the reference shows.
//
// What is drawn has a meaning that rounding does not change much: decisions (conditions, floor,
// int, the mask) rest on numbers that f32 holds exactly, and what rounds is continuous and bounded.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dsl/attention_spec.h"

namespace flashcore {

/// Chance, the same on every machine.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed * 7919u + 17u) {}

  int between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
  }
  bool one_in(int n) { return between(1, n) == 1; }
  template <class T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(between(0, static_cast<int>(choices.size()) - 1))];
  }

 private:
  std::mt19937 random_;
};

/// A tensor that expressions read, with its elements.
struct CapturedValues {
  Captured tensor;
  std::vector<std::int64_t> shape;
  std::vector<double> values;  ///< dense, each one that the dtype holds exactly

  /// Zero outside; integers saturate at i32.
  [[nodiscard]] double at(const std::vector<double>& indices) const;
};

/// The position of a score.
struct Site {
  double score = 0;
  int b = 0, h = 0, q_idx = 0, kv_idx = 0, q_len = 0, kv_len = 0;
};

struct ExpressionNode;
using ExpressionTree = std::shared_ptr<const ExpressionNode>;

/// `name = tree; ...` and the value.
struct RandomExpression {
  std::vector<ExpressionTree> parts;  ///< their names are a0, a1, ...
  ExpressionTree value;

  [[nodiscard]] std::string text() const;
  [[nodiscard]] double at(const Site& site, const std::vector<CapturedValues>& captured) const;
  /// The captured tensors it reads, in the order of `captured`.
  [[nodiscard]] std::vector<Captured> reads(const std::vector<CapturedValues>& captured) const;
};

/// Up to `count` tensors of any dtype and rank.
std::vector<CapturedValues> draw_captured(Draw& draw, int count);

RandomExpression draw_mask_expression(Draw& draw, const std::vector<CapturedValues>& captured);
RandomExpression draw_score_expression(Draw& draw, const std::vector<CapturedValues>& captured);
RandomExpression draw_sink_expression(Draw& draw, const std::vector<CapturedValues>& captured);

}  // namespace flashcore
