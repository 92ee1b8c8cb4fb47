// Control flow: loops and what they carry, regions behind a condition.
#include <algorithm>
#include <utility>

#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"

namespace flashcore {

using namespace ir;

namespace {

/// Whether one variable holds a value: a scalar, or the address of a tile in shared memory.
bool is_variable(const Value& value) {
  return value.type.is_scalar() || value.layout.space == Space::shared;
}

}  // namespace

/// What a variable or an array holds becomes that of another, unless it is the same.
void KernelPrinter::assign(ValueId to, ValueId from) {
  if (!is_variable(f_[to])) return become(to, from);
  if (storage_[to.index] != storage_[from.index])
    out_.line("{} = {};", storage_[to.index], scalar(from));
}

/// Gives a carried value of a loop its variable, with what it starts from.
void KernelPrinter::start_carried(const Carried& carried) {
  std::string& name = storage_[carried.argument.index];
  if (is_variable(f_[carried.argument])) {
    name = names_.unique(f_[carried.argument].name);
    out_.line("{} {} = {};", array_type(carried.argument), name, scalar(carried.start));
  } else {
    become(carried.argument, carried.start);
  }
  storage_[carried.result.index] = name;
}

/// The number of the first tile, and that behind the last.
std::pair<std::string, std::string> KernelPrinter::loop_bounds(const Op& loop) {
  if (loop.bounds == 0) return {"0", tile_count(loop.axis)};
  return {scalar(loop.operands[0]),
          scalar(loop.operands[static_cast<std::size_t>(loop.bounds) - 1])};
}

void KernelPrinter::print_loop(const Op& loop) {
  prepare_sources(loop.body);
  out_.blank();
  for (const Carried& carried : carried_by(f_, loop)) start_carried(carried);
  const ValueId tile = f_[loop.body].arguments[0];
  const std::string name = names_.unique(loop.axis ? f_[loop.axis].name + "_tile" : f_[tile].name);
  storage_[tile.index] = name;
  if (loop.axis)
    out_.comment(fmt::format("{} tiles of {}", f_[loop.axis].name, f_[loop.axis].tile));
  const auto [begin, end] = loop_bounds(loop);
  const std::string goes_on =
      loop.descending ? fmt::format("{} >= {}", name, begin) : fmt::format("{} < {}", name, end);
  Writer::Scopes scopes;
  if (loop.buffer) {
    const std::string next = names_.unique("next_tile");
    scopes.push_back(out_.block("for (int {0} = {1}, {2}; {3}; {0} = {2})", name,
                                tile_behind(loop, loop.descending ? end : begin + " - 1"), next,
                                goes_on));
    out_.line("{} = {};", next, tile_behind(loop, name));
    next_tile_ = {tile, next};
  } else {
    // Copies of an iteration that works on tiles cost time to compile, and save none.
    const bool carries_tiles =
        std::ranges::any_of(loop.results, [&](ValueId v) { return !f_[v].type.is_scalar(); });
    const bool fills =
        std::ranges::any_of(f_[loop.body].ops, [&](OpId id) { return is_bulk_copy(f_[id]); });
    const bool claims = holds(f_, loop.body, OpCode::claim_tile);
    if ((!loop.axis && carries_tiles) || fills || claims) out_.line("#pragma unroll 1");
    scopes.push_back(out_.block("for (int {} = {}; {}; {}{})", name,
                                loop.descending ? end + " - 1" : begin, goes_on,
                                loop.descending ? "--" : "++", name));
  }
  const auto outer_begins = begins_;
  if (loop.axis && needs_position(loop.body, loop.axis)) print_position(loop.axis, name);
  print_block(loop.body);
  print_yield(loop);
  begins_ = outer_begins;
}

void KernelPrinter::print_yield(const Op& loop) {
  const std::vector<Carried> carried = carried_by(f_, loop);
  std::vector<std::string> targets, sources;
  for (const Carried& one : carried) targets.push_back(storage_[one.argument.index]);
  // What an earlier assignment would overwrite is set aside: carried values may change places.
  const std::vector<std::string> before = storage_;
  for (std::size_t i = 0; i < carried.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (storage_[carried[i].next.index] == targets[k] &&
          storage_[carried[k].next.index] != targets[k])
        set_aside(carried[i].next);
  for (const Carried& one : carried) sources.push_back(storage_[one.next.index]);
  for (std::size_t i = 0; i < carried.size(); ++i) {
    storage_[carried[i].argument.index] = targets[i];
    storage_[carried[i].next.index] = sources[i];
    assign(carried[i].argument, carried[i].next);
  }
  storage_ = before;
}

/// Copies a value to a variable of its own.
void KernelPrinter::set_aside(ValueId value) {
  const bool is_scalar = f_[value].type.is_scalar();
  const std::string from = is_scalar ? scalar(value) : storage_[value.index];
  const std::string to = storage_[value.index] = names_.unique(f_[value].name);
  if (is_scalar) return out_.line("const auto {} = {};", to, from);
  out_.line("decltype({}) {};", from, to);
  const Loops cursor = open_loops(shape_of(value));
  const std::string copied = element(value, cursor);
  storage_[value.index] = from;
  out_.line("{} = {};", copied, element(value, cursor));
  storage_[value.index] = to;
}

/// Whether what stands in a block, and in no loop of it, asks where an axis is.
bool KernelPrinter::needs_position(BlockId block, AxisId axis) const {
  return std::ranges::any_of(f_[block].ops, [&](OpId id) {
    const Op& op = f_[id];
    if (is_plain(op.code))
      return needs_position(op.body, axis) || (op.otherwise && needs_position(op.otherwise, axis));
    return (f_.origin(op.axis) == axis && kind_of(op.code) == OpKind::source) ||
           op.code == OpCode::load || op.code == OpCode::store || is_bulk_copy(op);
  });
}

void KernelPrinter::print_enter(const Op& op) {
  const AxisKind kind = f_[op.axis].kind;
  if (kind != AxisKind::tiles) begins_[op.axis.index] = scalar(op.operands[0]);
  if (kind == AxisKind::tiles ? needs_position(block_, op.axis) : kind == AxisKind::parallel_tiles)
    print_position(op.axis, scalar(op.operands[0]));
}

/// Whether a condition on rows, or a scalar, holds for all elements that the lanes of a warp hold.
void KernelPrinter::print_vote(const Op& op) {
  const ValueId condition = op.operands[0];
  std::string all;
  if (f_[condition].type.is_scalar()) {
    all = scalar(condition);
  } else {
    const Shape rows = shape_of(condition);
    for (int i = 0; i < rows.layouts[0].fragments; ++i)
      for (int e = 0; e < rows.layouts[0].slots; ++e)
        append(all, " && ",
               element(condition, {rows, {std::to_string(i)}, {std::to_string(e)}, {}}));
  }
  storage_[op.results[0].index] = fmt::format("fc::all_lanes({})", all);
}

/// Whether the squares of all elements that the lanes of a warp hold are at most a bound. One is at
/// most the sum of several, and multiply-adds take half the time of comparisons. A sum of all would
/// be too coarse; eight side by side wait for each other less.
void KernelPrinter::print_bound(const Op& op) {
  constexpr int chains = 8;
  const ValueId tile = op.operands[0];
  const std::string squares = names_.unique(label(tile) + "_squares"),
                    within = names_.unique("within");
  out_.comment(
      fmt::format("whether no square of {} is above {}", label(tile), label(op.operands[1])));
  out_.line("float {}[{}] = {{}};", squares, chains);
  {
    const Loops cursor = open_loops(shape_of(tile), /*braces=*/true);
    std::string chain = cursor.element;
    for (const std::string& fragment : cursor.fragments) chain += " + " + fragment + " * 4";
    const std::string sum = names_.unique("sum");
    out_.line("float& {} = {}[({}) % {}];", sum, squares, chain, chains);
    out_.line("{0} = fc::fma({1}, {1}, {0});", sum, element(tile, cursor));
    names_.release(sum);
  }
  out_.line("bool {} = true;", within);
  auto loop = out_.unrolled("i", chains, false);
  out_.line("{0} = {0} && {1}[i] <= {2};", within, squares, scalar(op.operands[1]));
  storage_[op.results[0].index] = fmt::format("fc::all_lanes({})", within);
}

/// Whether a region computes something, or yields what is not a result already.
bool KernelPrinter::does_something(const Op& op, BlockId region) const {
  if (!region) return false;
  const std::vector<ValueId>& yielded = last_of(f_, region).operands;
  const auto sources = [&](OpId id) { return kind_of(f_[id].code) == OpKind::source; };
  for (std::size_t i = 0; i < yielded.size(); ++i) {
    const bool any = definition_as(f_, yielded[i], OpCode::undefined) != nullptr;
    const bool there = f_[yielded[i]].array && f_[yielded[i]].array == f_[op.results[i]].array;
    if (uses_[op.results[i].index] > 0 && !any && !there) return true;
  }
  return !std::all_of(f_[region].ops.begin(), f_[region].ops.end() - 1, sources);
}

void KernelPrinter::print_if(const Op& op) {
  prepare_sources(op.body);
  // What it gives has its variable in front of it.
  for (ValueId result : op.results) {
    if (uses_[result.index] == 0) continue;
    if (!f_[result].type.is_scalar()) {
      declare(result);
      continue;
    }
    storage_[result.index] = names_.unique(f_[result].name);
    out_.line("{} {};", array_type(result), storage_[result.index]);
  }
  const std::string condition = without_parentheses(scalar(op.operands[0]));
  const auto print_region = [&](BlockId region) {
    const auto outer_begins = begins_;
    print_block(region);
    const std::vector<ValueId>& yielded = last_of(f_, region).operands;
    for (std::size_t i = 0; i < yielded.size(); ++i)
      if (uses_[op.results[i].index] > 0) assign(op.results[i], yielded[i]);
    begins_ = outer_begins;
  };
  if (does_something(op, op.body)) {
    {
      auto scope = out_.block("if ({})", condition);
      print_region(op.body);
    }
    if (!does_something(op, op.otherwise)) return;
    auto scope = out_.block("else");
    print_region(op.otherwise);
  } else if (does_something(op, op.otherwise)) {
    const bool simple = condition.find_first_of("<>=&|") == std::string::npos;
    auto scope = out_.block("if (!{})", simple ? condition : "(" + condition + ")");
    print_region(op.otherwise);
  }
}

}  // namespace flashcore
