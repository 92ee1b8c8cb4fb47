// Control flow: loops and what they carry, regions behind a condition.
#include <algorithm>
#include <utility>

#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

/// Gives carried value i of a loop its variable: the start's own if the start dies here.
void KernelPrinter::start_carried(const Op& loop, std::size_t i, std::size_t position) {
  const ValueId start = loop.operands[static_cast<std::size_t>(loop.bounds) + i];
  const ValueId argument = f_[loop.body].arguments[i + 1];
  const Op* made_by = f_.definition(start);
  const bool constant = made_by && made_by->code == OpCode::constant;
  std::string& name = storage_[argument.index];
  if (f_[argument].type.is_scalar()) {
    const bool reuse =
        !constant && dies_at(start, position) && carried_.count(storage_[start.index]);
    if (reuse) {
      name = storage_[start.index];
    } else {
      name = names_.unique(f_[argument].name);
      out_.line("{} {} = {};", f_[argument].type.dtype == DType::i32 ? "int" : "float", name,
                scalar(start));
    }
  } else if (!constant && dies_at(start, position)) {
    name = storage_[start.index];
  } else {
    const bool zero = constant && made_by->number == 0;
    name = declare(argument, zero);
    if (!zero) {
      Writer::Scopes scopes;
      const Cursor cursor = open_loops(shape_of(argument), scopes);
      out_.line("{} = {};", element(argument, cursor), element(start, cursor));
    }
  }
  carried_.insert(name);
  storage_[loop.results[i].index] = name;
}

/// The number of the first tile, and that behind the last.
std::pair<std::string, std::string> KernelPrinter::loop_bounds(const Op& loop) {
  if (loop.bounds == 0) return {"0", tile_count(loop.axis)};
  return {scalar(loop.operands[0]),
          scalar(loop.operands[static_cast<std::size_t>(loop.bounds) - 1])};
}

/// Where a loop begins; what a tile is as long as the loop has not come to its end; how it comes to
/// the next.
std::string KernelPrinter::first_tile(const Op& loop) {
  const auto [begin, end] = loop_bounds(loop);
  if (loop.buffer) return tile_behind(loop, loop.descending ? end : begin + " - 1");
  return loop.descending ? end + " - 1" : begin;
}
std::string KernelPrinter::is_tile(const Op& loop, const std::string& tile) {
  const auto [begin, end] = loop_bounds(loop);
  return loop.descending ? fmt::format("{} >= {}", tile, begin) : fmt::format("{} < {}", tile, end);
}
std::string KernelPrinter::to_next_tile(const Op& loop, const std::string& tile) {
  if (loop.buffer) return fmt::format("{} = {}", tile, tile_behind(loop, tile));
  return (loop.descending ? "--" : "++") + tile;
}

void KernelPrinter::print_loop(const Op& loop) {
  prepare_sources(loop.body);
  out_.blank();
  const std::size_t position = position_;
  for (std::size_t i = 0; i < loop.results.size(); ++i) start_carried(loop, i, position);
  const ValueId tile = f_[loop.body].arguments[0];
  const std::string name = names_.unique(loop.axis ? f_[loop.axis].name + "_tile" : f_[tile].name);
  storage_[tile.index] = name;
  if (loop.axis)
    out_.comment(fmt::format("{} tiles of {}", f_[loop.axis].name, f_[loop.axis].tile));
  const auto& ops = f_[loop.body].ops;
  const bool fills = std::any_of(ops.begin(), ops.end(),
                                 [&](OpId id) { return f_[id].code == OpCode::producer_load; });
  Writer::Scopes scopes;
  if (loop.buffer)
    open_scanned_loop(loop, scopes);
  else {
    // Copies of an iteration that works on tiles cost time to compile, and save none.
    const bool carries_tiles = std::any_of(loop.results.begin(), loop.results.end(),
                                           [&](ValueId v) { return !f_[v].type.is_scalar(); });
    if ((!loop.axis && carries_tiles) || fills) out_.line("#pragma unroll 1");
    scopes.push_back(out_.block("for (int {} = {}; {}; {})", name, first_tile(loop),
                                is_tile(loop, name), to_next_tile(loop, name)));
  }
  const auto outer_begins = begins_;
  if (loop.axis && needs_position(loop.body, loop.axis)) print_position(loop.axis, name);
  // A loop may stand behind the first iteration of another.
  const GuardedMasks outer_masks = std::exchange(masks_, {});
  find_guarded_masks(loop.body, outer_masks.iterations == GuardedMasks::Iterations::first
                                    ? (loop.descending ? 1 : -1)
                                    : 0);
  print_block(loop.body);
  masks_ = outer_masks;
  print_yield(loop, f_[f_[loop.body].ops.back()]);
  begins_ = outer_begins;
}

void KernelPrinter::print_yield(const Op& loop, const Op& yield) {
  std::vector<std::string> targets;
  for (std::size_t i = 0; i < yield.operands.size(); ++i)
    targets.push_back(storage_[f_[loop.body].arguments[i + 1].index]);
  // What an earlier assignment would overwrite is set aside: carried values may change places.
  const std::vector<std::string> before = storage_;
  for (std::size_t i = 0; i < yield.operands.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (storage_[yield.operands[i].index] == targets[k] &&
          storage_[yield.operands[k].index] != targets[k])
        set_aside(yield.operands[i]);
  for (std::size_t i = 0; i < yield.operands.size(); ++i) {
    const ValueId argument = f_[loop.body].arguments[i + 1], next = yield.operands[i];
    if (storage_[next.index] == targets[i]) continue;
    if (f_[argument].type.is_scalar()) {
      out_.line("{} = {};", targets[i], scalar(next));
      continue;
    }
    Writer::Scopes scopes;
    const Cursor cursor = open_loops(shape_of(argument), scopes);
    const std::string from = element(next, cursor);
    const std::string aside = std::exchange(storage_[argument.index], targets[i]);
    out_.line("{} = {};", element(argument, cursor), from);
    storage_[argument.index] = aside;
  }
  storage_ = before;
}

/// Copies a value to a variable of its own.
void KernelPrinter::set_aside(ValueId value) {
  if (f_[value].type.is_scalar()) {
    const std::string from = scalar(value);
    storage_[value.index] = names_.unique(f_[value].name);
    out_.line("const auto {} = {};", storage_[value.index], from);
    return;
  }
  const std::string from = storage_[value.index], to = declare(value);
  Writer::Scopes scopes;
  const Cursor cursor = open_loops(shape_of(value), scopes);
  storage_[value.index] = from;
  const std::string old = element(value, cursor);
  storage_[value.index] = to;
  out_.line("{} = {};", element(value, cursor), old);
}

/// Whether what stands in a block, and in no loop of it, asks where an axis is.
bool KernelPrinter::needs_position(BlockId block, AxisId axis) const {
  return std::ranges::any_of(f_[block].ops, [&](OpId id) {
    const Op& op = f_[id];
    return (f_.origin(op.axis) == axis && kind_of(op.code) == OpKind::source) ||
           op.code == OpCode::load || op.code == OpCode::store || op.code == OpCode::producer_load;
  });
}

void KernelPrinter::print_position(AxisId axis, const std::string& tile) {
  begins_[axis.index] = names_.unique(f_[axis].name + "_begin");
  out_.line("const int {} = {} * {};", begins_[axis.index], tile, f_[axis].tile);
}

void KernelPrinter::print_enter(const Op& op) {
  if (f_[op.axis].kind != AxisKind::tiles) return print_enter_parallel(op);
  if (needs_position(block_, op.axis)) print_position(op.axis, scalar(op.operands[0]));
}

/// Whether a condition holds for all elements that the lanes of a warp hold.
void KernelPrinter::print_vote(const Op& op) {
  const ValueId condition = op.operands[0];
  std::string all;
  if (f_[condition].type.is_scalar()) {
    all = scalar(condition);
  } else {
    const Shape shape = shape_of(condition);
    Cursor cursor{.axes = shape.axes, .layouts = shape.layouts};
    const auto visit = [&](const auto& self, std::size_t k) -> void {
      if (k == shape.axes.size()) {
        all += (all.empty() ? "" : " && ") + element(condition, cursor);
        return;
      }
      for (int i = 0; i < shape.layouts[k].fragments; ++i)
        for (int e = 0; e < shape.layouts[k].slots; ++e) {
          cursor.fragments.push_back(std::to_string(i));
          cursor.slots.push_back(std::to_string(e));
          self(self, k + 1);
          cursor.fragments.pop_back();
          cursor.slots.pop_back();
        }
    };
    visit(visit, 0);
  }
  storage_[op.results[0].index] = fmt::format("fc::all_lanes({})", all);
}

/// A scalar that an `if` gives: the variable of one that a region hands through, if that dies here
/// and may change.
void KernelPrinter::start_scalar_result(const Op& op, std::size_t i) {
  std::string& name = storage_[op.results[i].index];
  for (const BlockId region : {op.otherwise, op.body}) {
    const ValueId yielded = f_[f_[region].ops.back()].operands[i];
    if (dies_at(yielded, position_) && carried_.count(storage_[yielded.index]))
      name = storage_[yielded.index];
  }
  if (!name.empty()) return;
  name = names_.unique(f_[op.results[i]].name);
  out_.line("{} {};", array_type(op.results[i]), name);
  carried_.insert(name);
}

/// What an `if` gives: the array of a value that one region hands through, if that dies here.
void KernelPrinter::start_results(const Op& op) {
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    const ValueId result = op.results[i];
    if (uses_[result.index] == 0) continue;
    if (f_[result].type.is_scalar()) {
      start_scalar_result(op, i);
      continue;
    }
    for (const BlockId region : {op.otherwise, op.body}) {
      const ValueId yielded = f_[f_[region].ops.back()].operands[i];
      if (storage_[result.index].empty() && !is_source(yielded) && dies_at(yielded, position_) &&
          shape_of(yielded) == shape_of(result))
        storage_[result.index] = storage_[yielded.index];
    }
    if (storage_[result.index].empty()) declare(result);
  }
}

/// Lets what a region makes for its yield be made in the array of the result, where nothing reads
/// what that held any more.
void KernelPrinter::make_in_place(const Op& op, BlockId region) {
  const auto& ops = f_[region].ops;
  const std::vector<ValueId>& yielded = f_[ops.back()].operands;
  for (std::size_t i = 0; i < yielded.size(); ++i) {
    const Op* made_by = f_.definition(yielded[i]);
    if (defining_block_[yielded[i].index] != region || f_[yielded[i]].type.is_scalar() ||
        !made_by || kind_of(made_by->code) != OpKind::elementwise)
      continue;
    const std::string& array = storage_[op.results[i].index];
    if (array.empty()) continue;
    bool behind = false, read = false;
    for (OpId id : ops) {
      if (behind && f_[id].code != OpCode::yield)
        for_each_use(f_[id], [&](const ValueId& v) {
          read = read || (v != yielded[i] && storage_[v.index] == array);
        });
      behind = behind || &f_[id] == made_by;
    }
    if (!read) storage_[yielded[i].index] = array;
  }
}

/// What a region yields becomes the results, unless it lies there already.
void KernelPrinter::print_results(const Op& op, BlockId region) {
  const std::vector<ValueId>& yielded = f_[f_[region].ops.back()].operands;
  for (std::size_t i = 0; i < yielded.size(); ++i) {
    const ValueId result = op.results[i];
    const std::string target = storage_[result.index];
    if (target.empty() || storage_[yielded[i].index] == target) continue;
    if (f_[result].type.is_scalar()) {
      out_.line("{} = {};", target, scalar(yielded[i]));
      continue;
    }
    Writer::Scopes scopes;
    const Cursor cursor = open_loops(shape_of(result), scopes);
    out_.line("{} = {};", element(result, cursor), element(yielded[i], cursor));
  }
}

void KernelPrinter::print_if(const Op& op) {
  prepare_sources(op.body);
  start_results(op);
  const auto says_something = [&](BlockId region) {
    if (!region) return false;
    const std::vector<ValueId>& yielded = f_[f_[region].ops.back()].operands;
    for (std::size_t i = 0; i < yielded.size(); ++i)
      if (const std::string& target = storage_[op.results[i].index];
          !target.empty() && storage_[yielded[i].index] != target)
        return true;
    return f_[region].ops.size() > 1;
  };
  std::string condition = scalar(op.operands[0]);
  if (condition.starts_with("(")) condition = condition.substr(1, condition.size() - 2);
  const auto print_region = [&](BlockId region) {
    const auto outer_begins = begins_;
    const auto outer_pointers = pointers_;
    const GuardedMasks outer_masks = std::exchange(masks_, {});
    make_in_place(op, region);
    find_guarded_masks(region, 0);
    print_block(region);
    print_results(op, region);
    masks_ = outer_masks;
    begins_ = outer_begins;
    pointers_ = outer_pointers;
  };
  if (says_something(op.body)) {
    {
      auto scope = out_.block("if ({})", condition);
      print_region(op.body);
    }
    if (!says_something(op.otherwise)) return;
    auto scope = out_.block("else");
    print_region(op.otherwise);
  } else if (says_something(op.otherwise)) {
    const bool simple = condition.find_first_of("<>=&|") == std::string::npos;
    auto scope = out_.block("if (!{})", simple ? condition : "(" + condition + ")");
    print_region(op.otherwise);
  }
}

}  // namespace flashcore
