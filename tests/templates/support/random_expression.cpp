#include "tests/templates/support/random_expression.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "tests/templates/support/expression_tree.h"

namespace flashcore {
namespace {

class Grower {
 public:
  Grower(Draw& draw, const std::vector<CapturedValues>& captured, bool keys, bool score)
      : draw_(draw), captured_(captured), keys_(keys), score_(score) {}

  RandomExpression finish(ExpressionTree value) { return {std::move(parts_), std::move(value)}; }

  /// Sometimes gives a tree a name; reads of the name mean the tree.
  ExpressionTree maybe_named(ExpressionTree tree) {
    if (!draw_.one_in(6) || tree->args.empty()) return tree;
    return named(std::move(tree));
  }
  ExpressionTree named(ExpressionTree tree) {
    ExpressionNode name = *tree;
    name.op = "a";
    name.args.clear();
    name.number = static_cast<double>(parts_.size());
    parts_.push_back(std::move(tree));
    auto reference = std::make_shared<const ExpressionNode>(std::move(name));
    references_.push_back(reference);
    return reference;
  }

  // -- conditions

  ExpressionTree condition(int depth) {
    if (depth <= 0 || draw_.one_in(3)) return comparison(depth);
    switch (draw_.between(0, 9)) {
      case 0:
      case 1:
      case 2:
        return maybe_named(
            make(Kind::condition, "&", {condition(depth - 1), condition(depth - 1)}));
      case 3:
      case 4:
      case 5:
        return maybe_named(
            make(Kind::condition, "|", {condition(depth - 1), condition(depth - 1)}));
      case 6:
        return make(Kind::condition, "~", {condition(depth - 1)});
      case 7:
        if (ExpressionTree read = element(Kind::condition, depth)) return read;
        return comparison(depth);
      case 8:
        if (ExpressionTree known = reference(Kind::condition)) return known;
        return comparison(depth);
      default:
        return draw_.one_in(3) ? number(Kind::condition, draw_.between(0, 1)) : comparison(depth);
    }
  }

  ExpressionTree comparison(int depth) {
    static const std::vector<std::string> signs{"<",  "<=", ">",  ">=", "<",
                                                "<=", ">",  ">=", "==", "!="};
    const std::string sign = draw_.one_of(signs);
    if (draw_.one_in(4)) {
      ExpressionTree left = exact(depth), right = exact(depth);
      if (!left->constant || !right->constant) return make(Kind::condition, sign, {left, right});
    }
    if (draw_.one_in(4))
      if (ExpressionTree read = element(Kind::integer, depth))
        return make(Kind::condition, sign, {read, integer(depth)});
    // The positions decide most of the time, or nothing would be visible, or everything.
    ExpressionTree left = keys_ && draw_.one_in(2) ? name("kv_idx") : integer(depth);
    if (left->constant) left = name(draw_.one_in(2) ? "q_idx" : "h");
    return make(Kind::condition, sign, {left, integer(depth)});
  }

  // -- integers

  ExpressionTree integer(int depth) {
    if (depth <= 0 || draw_.one_in(4)) return small_integer();
    const auto next = [&] { return integer(depth - 1); };
    switch (draw_.between(0, 13)) {
      case 0:
      case 1:
        return bounded(make(Kind::integer, "+", {next(), next()}));
      case 2:
      case 3:
      case 4:
        return bounded(make(Kind::integer, "-", {next(), next()}));
      case 5:
        return bounded(make(Kind::integer, "*", {next(), small_number()}));
      case 6:
      case 7:
        return make(Kind::integer, "//", {next(), divisor(depth)});
      case 8:
        return make(Kind::integer, "%", {next(), divisor(depth)});
      case 9:
        return make(Kind::integer, draw_.one_in(2) ? "min" : "max", {next(), next()});
      case 10:
        return make(Kind::integer, draw_.one_in(2) ? "abs" : "neg", {next()});
      case 11:
        return make(Kind::integer, "where", {condition(depth - 1), next(), next()});
      case 12: {
        if (draw_.one_in(2)) return whole_of(exact(depth - 1));
        return bounded(make(Kind::integer, "+", {condition(depth - 1), next()}));
      }
      default: {
        if (ExpressionTree read = element(Kind::integer, depth)) return maybe_named(read);
        if (ExpressionTree known = reference(Kind::integer)) return known;
        return small_integer();
      }
    }
  }

  // -- numbers that f32 holds exactly

  ExpressionTree exact(int depth) {
    if (depth <= 0 || draw_.one_in(3)) {
      if (draw_.one_in(3))
        if (ExpressionTree read = element(Kind::real, depth)) return read;
      if (draw_.one_in(2)) return eighths();
      return make(Kind::real, "float", {small_integer()});
    }
    const auto next = [&] { return exact(depth - 1); };
    switch (draw_.between(0, 7)) {
      case 0:
        return held(make(Kind::real, "+", {next(), next()}));
      case 1:
        return held(make(Kind::real, "-", {next(), next()}));
      case 2:
        return held(make(Kind::real, "*", {next(), draw_.one_in(2) ? eighths() : small_number()}));
      case 3:
        return make(Kind::real, draw_.one_in(2) ? "min" : "max", {next(), next()});
      case 4:
        return make(Kind::real, "floor", {next()});
      case 5:
        return make(Kind::real, "where", {condition(depth - 1), next(), eighths()});
      case 6: {
        const double by = std::exp2(draw_.between(0, 3));
        return held(
            make(Kind::real, draw_.one_in(2) ? "/" : "//", {next(), number(Kind::real, by)}));
      }
      default: {
        if (ExpressionTree read = element(Kind::real, depth)) return maybe_named(read);
        return make(Kind::real, draw_.one_in(2) ? "abs" : "neg", {next()});
      }
    }
  }

  // -- numbers

  ExpressionTree real(int depth) {
    if (depth <= 0 || draw_.one_in(5)) return score_ && !draw_.one_in(3) ? name("score") : exact(0);
    const auto next = [&] { return real(depth - 1); };
    switch (draw_.between(0, 13)) {
      case 0:
      case 1:
        return tame(make(Kind::real, "+", {next(), next()}));
      case 2:
        return tame(make(Kind::real, "-", {next(), next()}));
      case 3:
        return tame(make(Kind::real, "*", {next(), draw_.one_in(2) ? eighths() : next()}));
      case 4: {
        // No smaller than a half: |x| + c.
        ExpressionTree under =
            make(Kind::real, "+", {make(Kind::real, "abs", {next()}), positive()});
        return tame(make(Kind::real, "/", {next(), under}));
      }
      case 5:
        return make(Kind::real, draw_.one_in(2) ? "min" : "max", {next(), next(), eighths()});
      case 6:
        return make(Kind::real, draw_.one_in(2) ? "abs" : "neg", {next()});
      case 7:
      case 8:
        return make(Kind::real, "tanh", {next()});
      case 9: {
        ExpressionTree low = make(Kind::real, "max", {next(), number(Kind::real, -8)});
        return make(Kind::real, draw_.one_in(2) ? "exp" : "exp2",
                    {make(Kind::real, "min", {low, number(Kind::real, 2)})});
      }
      case 10: {
        ExpressionTree above =
            make(Kind::real, "+", {make(Kind::real, "abs", {next()}), positive()});
        static const std::vector<std::string> functions{"log", "log2", "sqrt"};
        return make(Kind::real, draw_.one_of(functions), {above});
      }
      case 11:
        return make(Kind::real, "where", {condition(depth - 1), next(), next()});
      case 12:
        if (ExpressionTree known = reference(Kind::real)) return known;
        return next();
      default:
        return maybe_named(exact(depth));
    }
  }

  /// Bounded, so that scores stay where a comparison of softmaxes means something.
  ExpressionTree tame(ExpressionTree tree) {
    if (tree->limit <= 64) return tree;
    ExpressionTree scaled =
        make(Kind::real, "/",
             {tree, number(Kind::real, std::exp2(std::ceil(std::log2(tree->limit)) - 2))});
    return make(Kind::real, "*",
                {number(Kind::real, draw_.between(1, 8)), make(Kind::real, "tanh", {scaled})});
  }

  ExpressionTree make(Kind kind, std::string op, std::vector<ExpressionTree> args) const {
    ExpressionNode node{kind, std::move(op), std::move(args)};
    measure(node);
    return std::make_shared<const ExpressionNode>(std::move(node));
  }
  ExpressionTree number(Kind kind, double value) const {
    ExpressionNode node{kind, "#", {}, value};
    node.limit = std::abs(value);
    node.bits = kind == Kind::real ? 3 : 0;
    node.constant = kind != Kind::condition;
    return std::make_shared<const ExpressionNode>(std::move(node));
  }
  ExpressionTree name(std::string op) const {
    ExpressionNode node{op == "score" ? Kind::real : Kind::integer, std::move(op)};
    node.limit = node.op == "score" ? 24 : node.op == "b" || node.op == "h" ? 8 : 512;
    node.bits = node.op == "score" ? -1 : 0;
    return std::make_shared<const ExpressionNode>(std::move(node));
  }

 private:
  ExpressionTree small_integer() {
    // What masks and scores both ask for: they share it in a kernel.
    if (keys_ && draw_.one_in(8)) return make(Kind::integer, "-", {name("q_idx"), name("kv_idx")});
    switch (draw_.between(0, 9)) {
      case 0:
      case 1:
      case 2:
        return name("q_idx");
      case 3:
      case 4:
        return name(keys_ ? "kv_idx" : "q_idx");
      case 5:
        return name(draw_.one_in(2) ? "h" : "b");
      case 6:
        return name(draw_.one_in(2) ? "q_len" : "kv_len");
      default:
        return number(Kind::integer, draw_.between(draw_.one_in(3) ? -40 : 0, 90));
    }
  }
  ExpressionTree small_number() { return number(Kind::integer, draw_.between(-3, 5)); }
  ExpressionTree eighths() { return number(Kind::real, draw_.between(-40, 40) / 8.0); }
  ExpressionTree positive() { return number(Kind::real, draw_.between(4, 32) / 8.0); }

  /// Mostly a constant; any value at times, also zero.
  ExpressionTree divisor(int depth) {
    if (draw_.one_in(5)) {
      ExpressionTree any = integer(depth - 1);
      if (!any->constant) return any;
    }
    static const std::vector<int> choices{1, 2, 3, 4, 7, 8, 16, 20, 32, 64, -3, -16};
    return number(Kind::integer, draw_.one_of(choices));
  }

  ExpressionTree reference(Kind kind) {
    std::vector<ExpressionTree> fitting;
    for (const ExpressionTree& one : references_)
      if (one->kind == kind) fitting.push_back(one);
    return fitting.empty() ? nullptr : draw_.one_of(fitting);
  }

  /// An element of a tensor of that kind, at any positions, inside or out.
  ExpressionTree element(Kind kind, int depth) {
    std::vector<const CapturedValues*> fitting;
    for (const CapturedValues& one : captured_) {
      const DType dtype = one.tensor.dtype;
      const Kind its = dtype == DType::i1 ? Kind::condition
                       : is_float(dtype)  ? Kind::real
                                          : Kind::integer;
      if (its == kind) fitting.push_back(&one);
    }
    if (fitting.empty()) return nullptr;
    const CapturedValues& one = *draw_.one_of(fitting);
    ExpressionNode node{kind, "[]"};
    node.name = one.tensor.name;
    for (int dim = 0; dim < one.tensor.rank; ++dim)
      node.args.push_back(draw_.one_in(3) ? integer(depth - 1) : small_integer());
    node.limit = 0;
    for (double value : one.values) node.limit = std::max(node.limit, std::abs(value));
    node.bits = kind == Kind::real ? 3 : 0;
    const bool huge = node.limit > 1e6;
    const ExpressionTree read = std::make_shared<const ExpressionNode>(std::move(node));
    if (!huge) return read;
    // What saturates is brought to where arithmetic does not overflow.
    ExpressionNode clamped = *make(Kind::integer, "max",
                                   {make(Kind::integer, "min", {read, number(Kind::integer, 900)}),
                                    number(Kind::integer, -900)});
    clamped.limit = 900;
    return std::make_shared<const ExpressionNode>(std::move(clamped));
  }

  /// Integers that i32 holds with room to spare.
  ExpressionTree bounded(ExpressionTree tree) {
    if (tree->limit <= 1e6) return tree;
    return make(Kind::integer, "%", {tree, number(Kind::integer, draw_.between(2, 300))});
  }
  /// Numbers that f32 holds exactly, or a simpler one.
  ExpressionTree held(ExpressionTree tree) {
    const bool fits = tree->bits >= 0 && tree->limit * std::exp2(tree->bits) <= (1 << 22);
    return fits ? tree : eighths();
  }
  ExpressionTree whole_of(ExpressionTree tree) {
    return tree->limit <= 1e6 ? make(Kind::integer, "int", {tree}) : small_integer();
  }

  static void measure(ExpressionNode& node) {
    static const std::set<std::string> folded{"+",   "-",   "*",   "/",   "//",    "%",
                                              "neg", "abs", "min", "max", "float", "int"};
    const auto& args = node.args;
    double most = 0;
    int bits = 0;
    bool rounded = false;
    node.constant = folded.contains(node.op);
    for (std::size_t i = node.op == "where" ? 1 : 0; i < args.size(); ++i) {
      const ExpressionNode& arg = *args[i];
      const double limit = arg.kind == Kind::condition ? 1 : arg.limit;
      most = std::max(most, limit);
      bits = std::max(bits, arg.bits);
      rounded = rounded || arg.bits < 0;
      node.constant = node.constant && arg.constant;
    }
    const std::string& op = node.op;
    const auto limit = [&](std::size_t i) {
      return args[i]->kind == Kind::condition ? 1.0 : args[i]->limit;
    };
    node.limit = most;
    node.bits = rounded ? -1 : bits;
    if (op == "+" || op == "-") node.limit = limit(0) + limit(1);
    if (op == "*")
      node.limit = limit(0) * limit(1), node.bits = rounded ? -1 : args[0]->bits + args[1]->bits;
    if (op == "/" && args[1]->constant) {
      node.limit = limit(0) / std::max(0.5, limit(1));
      node.bits = rounded ? -1 : args[0]->bits + 3;
    } else if (op == "/") {
      node.limit = limit(0) * 2;
      node.bits = -1;
    }
    if (op == "//") node.limit = limit(0) + 1;
    if (op == "%") node.limit = limit(0) + limit(1);
    if (op == "floor" || op == "int") node.limit = most + 1, node.bits = 0;
    if (op == "exp" || op == "exp2") node.limit = 8, node.bits = -1;
    if (op == "log" || op == "log2" || op == "sqrt") node.limit = 20, node.bits = -1;
    if (op == "tanh") node.limit = 1, node.bits = -1;
    if (node.kind != Kind::real) node.bits = 0;
    if (node.kind == Kind::condition) node.limit = 1;
  }

  Draw& draw_;
  const std::vector<CapturedValues>& captured_;
  bool keys_, score_;
  std::vector<ExpressionTree> parts_, references_;
};

}  // namespace

std::vector<CapturedValues> draw_captured(Draw& draw, int count) {
  static const std::vector<DType> dtypes{DType::f16, DType::bf16, DType::f32, DType::f64,
                                         DType::i64, DType::i32,  DType::i16, DType::i8,
                                         DType::u8,  DType::i1};
  std::vector<CapturedValues> captured;
  for (int i = 0; i < count; ++i) {
    CapturedValues& one = captured.emplace_back();
    one.tensor = {fmt::format("t{}", i), draw.one_of(dtypes), draw.between(1, 4)};
    one.tensor.unit_stride = i % 2 == 0;
    one.tensor.aligned_rows =
        one.tensor.unit_stride && one.tensor.rank > 1 && is_half(one.tensor.dtype);
    std::size_t elements = 1;
    for (int dim = 0; dim < one.tensor.rank; ++dim) {
      // Long enough for positions in some dimensions, short enough to miss in others.
      one.shape.push_back(draw.between(1, one.tensor.rank == 1   ? 160
                                          : one.tensor.rank == 2 ? 60
                                                                 : 9));
      elements *= static_cast<std::size_t>(one.shape.back());
    }
    const bool huge = one.tensor.dtype == DType::i64 && draw.one_in(2);
    for (std::size_t k = 0; k < elements; ++k) {
      double value = 0;
      switch (one.tensor.dtype) {
        case DType::i1:
          value = draw.between(0, 1);
          break;
        case DType::i8:
          value = draw.between(-128, 127);
          break;
        case DType::u8:
          value = draw.between(0, 255);
          break;
        case DType::i64:
          value = huge && draw.one_in(4) ? draw.between(-9, 9) * 1e10 : draw.between(-50, 200);
          break;
        case DType::i32:
        case DType::i16:
          value = draw.between(-50, 200);
          break;
        default:
          value = draw.between(-64, 64) / 8.0;
      }
      one.values.push_back(value);
    }
  }
  return captured;
}

RandomExpression draw_mask_expression(Draw& draw, const std::vector<CapturedValues>& captured) {
  Grower grow(draw, captured, true, false);
  return grow.finish(grow.condition(draw.between(1, 4)));
}

RandomExpression draw_score_expression(Draw& draw, const std::vector<CapturedValues>& captured) {
  Grower grow(draw, captured, true, true);
  const ExpressionTree drawn = grow.tame(grow.real(draw.between(1, 4)));
  const ExpressionTree score = grow.name("score");
  const auto real = [&](double value) { return grow.number(Kind::real, value); };
  switch (draw.between(0, 8)) {
    case 0:
      return grow.finish(drawn);
    case 6:  // capped: as it is, a sum, or what is no sum
    case 7:
    case 8: {
      const ExpressionTree sum = grow.make(Kind::real, "+", {score, drawn});
      const ExpressionTree softcapped =
          draw.one_of<ExpressionTree>({score, sum, grow.make(Kind::real, "abs", {sum})});
      const ExpressionTree cap = real(draw.one_of<double>({2, 8, 16}));
      const ExpressionTree share = grow.make(Kind::real, "/", {softcapped, cap});
      return grow.finish(grow.make(Kind::real, "*", {cap, grow.make(Kind::real, "tanh", {share})}));
    }
    case 1:
      return grow.finish(
          grow.make(Kind::real, "*", {score, grow.make(Kind::real, "tanh", {drawn})}));
    case 2: {  // as a mask does
      const ExpressionTree hidden = grow.make(
          Kind::real, "where",
          {grow.condition(2), grow.make(Kind::real, "+", {score, drawn}), real(-INFINITY)});
      return grow.finish(hidden);
    }
    case 3:  // large: one key takes nearly all
      return grow.finish(grow.make(Kind::real, "*", {drawn, real(draw.between(4, 12))}));
    default:
      return grow.finish(grow.make(Kind::real, "+", {score, drawn}));
  }
}

RandomExpression draw_sink_expression(Draw& draw, const std::vector<CapturedValues>& captured) {
  Grower grow(draw, captured, false, false);
  return grow.finish(grow.tame(grow.exact(draw.between(0, 3))));
}

}  // namespace flashcore
