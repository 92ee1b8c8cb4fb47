#include "dsl/ir/verify.h"

#include <algorithm>
#include <climits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dsl/ir/print.h"
#include "dsl/ir/type_rules.h"
#include "dsl/ir/verify_declarations.h"
#include "dsl/ir/verify_op.h"
#include "dsl/ir/verify_stores.h"

namespace flashcore::ir {
namespace {

constexpr OpCode no_code = OpCode::yield;

bool yields(OpCode code) {
  return code == OpCode::loop || code == OpCode::scan_tiles || code == OpCode::tile_loop ||
         code == OpCode::issue || is_plain(code);
}

class Verifier {
 public:
  explicit Verifier(const Function& f) : f_(f), defined_(f.values.size()), stores_(f) {}

  void run() {
    verify_declarations(f_);
    block(f_.body, no_code);
    for (std::size_t i = 0; i < f_.axes.size(); ++i)
      if (f_.axes[i].ragged && !stores_.has_segment(f_.origin(AxisId(i))))
        throw SpecError({fmt::format("axis {} is ragged and has no segment", f_.axes[i].name),
                         "a block does not know which segment of the dimension it covers",
                         "set its segment at the top of the program",
                         {}});
    for (std::size_t i = 0; i < f_.tensors.size(); ++i)
      if (f_.tensors[i].output && !stores_.is_stored(TensorId(i)))
        throw SpecError({fmt::format("output {} is never stored", f_.tensors[i].name),
                         "a kernel writes all its outputs",
                         "store to it or leave it out",
                         {}});
  }

 private:
  // The ops of one region. `parent` is the op that owns it.

  void block(BlockId id, OpCode parent) {
    const std::vector<OpId>& ops = f_[id].ops;
    const std::set<AxisId> outside = entered_;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      op_ = &f_[ops[i]];
      const bool last = i + 1 == ops.size();
      if (op_->code == OpCode::yield && (!yields(parent) || !last))
        fail("a yield ends the region of a loop or an if and stands nowhere else",
             "make it the last line before the brace that closes one");
      if (last && yields(parent) && op_->code != OpCode::yield)
        fail(
            fmt::format("the region of a {} ends with a yield", name_of(parent)),
            "write yield and the next values of what it carries, if any, before its closing brace");
      if (parent == OpCode::nest && !last && !is_pure(*op_) &&
          kind_of(op_->code) != OpKind::reduction)
        fail("a nest only computes elements and reduces them", "move it out of the nest");
      if (parent == OpCode::scan_tiles && !last && !is_pure(*op_) && op_->code != OpCode::nest)
        fail("a scan only evaluates conditions on positions", "move it in front of the scan");
      if (parent == OpCode::issue && !last && !is_pure(*op_) && !loads_scalar(*op_))
        fail("an issue only computes positions", "move it in front of the issue");
      one(ops[i]);
    }
    entered_ = outside;
    if (ops.empty() && yields(parent))
      fail(fmt::format("the region of a {} ends with a yield", name_of(parent)),
           "write yield and the next values of what it carries, if any, before its closing brace");
  }

  void one(OpId id) {
    const Op& op = *op_;
    for_each_use(op, [&](const ValueId& value) {
      if (!value || value.index >= f_.values.size())
        fail("an operand is missing", "use values that operations before it have made");
      if (!defined_[value.index])
        fail(fmt::format("{} is not defined here", name(value)),
             "a value is used after the op that makes it, in the same region or one inside");
    });
    verify_op(f_, op);
    loop_axes(op);
    ragged_axes(op);
    if (op.code == OpCode::loop) loop(id);
    if (op.code == OpCode::scan_tiles) scan(id);
    if (is_plain(op.code)) conditional(id);
    if (op.code == OpCode::issue && op.body) computed_positions(id);
    if (op.code == OpCode::tile_loop) tile_loop(id);
    if (op.code == OpCode::role) role(op);
    if (op.code == OpCode::enter && !is_parallel(op.axis)) {
      over_tiles(op);
      entered_.insert(op.axis);
    }
    if (op.code == OpCode::store) stores_.check(op);
    for (const ValueId result : op.results) define(result, id);
  }

  /// The current tile of a `tiles` axis exists only inside a loop over it.
  void loop_axes(const Op& op) {
    auto inside = [&](AxisId axis) {
      const AxisId walked = f_.origin(axis);
      if (f_[axis].kind != AxisKind::tiles || loops_.contains(walked) || entered_.contains(walked))
        return;
      fail(fmt::format("it needs the current tile of {} outside a loop over {}", f_[axis].name,
                       walked == axis ? "it" : f_[walked].name),
           fmt::format("move it into loop({}, ...)", f_[walked].name));
    };
    if (op.code == OpCode::index || op.code == OpCode::tile_begin) inside(op.axis);
    // A copy may name another tile than the current one.
    if (op.code == OpCode::issue && !op.operands.empty()) return;
    for (const Coordinate& c : op.coordinates)
      if (c.axis) inside(c.axis);
  }

  /// The segment of a ragged axis is set once, above everything that is not a scalar. A block whose
  /// tile lies beyond the part leaves there, so that nothing it would have to write may be left.
  void ragged_axes(const Op& op) {
    auto placed = [&](AxisId axis) {
      if (f_[axis].ragged && !placed_.contains(f_.origin(axis)))
        fail(fmt::format("{} is used before its segment is set", f_[axis].name),
             fmt::format("set the segment of {} at the top of the program", f_[axis].name));
    };
    if (op.code == OpCode::segment) {
      if (f_[op.axis].alias_of) another_name(op.axis, "segment");
      if (works_ && !in_tile_loop_)
        fail("a segment stands above everything that is not a scalar",
             "move it up, behind the scalars that it needs");
      const Op* begin = f_.definition(op.operands[0]);
      const bool begins_at_0 = begin && begin->code == OpCode::constant && begin->number == 0;
      if (f_[op.axis].kind == AxisKind::parallel && !begins_at_0)
        fail(fmt::format("the segment of {}, an axis of positions, does not begin at 0",
                         f_[op.axis].name),
             "begin it at 0, and add to index(axis)");
      if (!placed_.insert(op.axis).second)
        fail(fmt::format("{} has two segments", f_[op.axis].name), "leave one of them out");
      stores_.place(op);
      return;
    }
    if (op.axis && op.code != OpCode::enter && op.code != OpCode::find_segment) placed(op.axis);
    for (const Coordinate& c : op.coordinates)
      if (c.axis) placed(c.axis);
    if (op.code == OpCode::wait_for_kernels || op.code == OpCode::launch_dependents) return;
    bool scalars = !op.results.empty() && !op.body;
    for (const ValueId result : op.results) scalars = scalars && f_[result].type.is_scalar();
    works_ = works_ || !scalars;
    if (op.code != OpCode::store || op.accumulation != Accumulation::none) return;
    for (std::size_t i = 0; i < f_.axes.size(); ++i)
      if (f_.axes[i].ragged && is_parallel(AxisId(i)) && !stores_.names(op, AxisId(i)))
        fail(fmt::format("a block beyond its segment of {} writes nothing", f_.axes[i].name),
             fmt::format("index {} by {}", f_[op.tensor].name, f_.axes[i].name));
  }

  static bool is_pure(const Op& op) {
    return kind_of(op.code) == OpKind::source || kind_of(op.code) == OpKind::elementwise;
  }
  [[nodiscard]] bool loads_scalar(const Op& op) const {
    return op.code == OpCode::load && op.results.size() == 1 && f_[op.results[0]].type.is_scalar();
  }

  [[noreturn]] void another_name(AxisId alias, std::string_view what) const {
    const std::string& name = f_[f_[alias].alias_of].name;
    fail(fmt::format("{} is another name of {}, and has its tiles", f_[alias].name, name),
         fmt::format("{} {}", what, name));
  }

  void over_tiles(const Op& op) {
    if (f_[op.axis].alias_of) another_name(op.axis, "loop over");
    if (f_[op.axis].kind != AxisKind::tiles)
      fail(fmt::format("{} is not an axis of kind tiles", f_[op.axis].name),
           fmt::format("declare it: axis {}: tiles {}", f_[op.axis].name,
                       f_[op.axis].extent.text()));
    if (op.body && loops_.contains(op.axis))
      fail(fmt::format("it is inside another loop over {}", f_[op.axis].name),
           "declare a second axis of that length for one of them");
  }

  void tile_loop(OpId id) {
    const Op& op = *op_;
    const std::vector<ValueId>& arguments = f_[op.body].arguments;
    const TileType number{DType::i32, {}};
    if (arguments.size() != 1 || !(f_[arguments[0]].type == number))
      fail("its region takes the number of a tile, an i32 scalar", "begin it with tile %t : i32");
    std::vector<bool> outside = defined_;
    // Each role sets the segments of each of its tiles.
    const std::set<AxisId> placed = placed_;
    in_tile_loop_ = true;
    define(arguments[0], {});
    block(op.body, op.code);
    defined_ = std::move(outside);
    placed_ = placed;
    in_tile_loop_ = false;
    op_ = &f_[f_[op.body].ops.back()];
    const std::size_t next = op.scheduler == TileScheduler::dynamic ? 1 : 0;
    if (op_->operands.size() != next || (next && !(f_[op_->operands[0]].type == number)))
      fail(fmt::format("it yields {} values, a tile_loop {} with this scheduler",
                       op_->operands.size(), next),
           "yield the number of the next tile, an i32 scalar, with the dynamic scheduler");
    op_ = &f_[id];
  }

  /// What one role makes the other does not see. Where a warp belongs the kernel asks once a role,
  /// from the last warps down. A role may be divided into roles, of warps among its own.
  void role(const Op& op) {
    const int around = first_warp_around_;
    if (op.warps) {
      const int behind = op.first_warp + op.warps;
      if (behind > first_warp_of_roles_)
        fail(fmt::format("its warps end at {}, and the role above has those from {}", behind,
                         first_warp_of_roles_),
             "give roles warps of their own, and list them from the last warps to the first");
      if (op.first_warp < around)
        fail(fmt::format("its warps begin at {}, and the role around it has those from {}",
                         op.first_warp, around),
             "give a role inside another one some of the warps of that one");
      first_warp_of_roles_ = behind;
      first_warp_around_ = op.first_warp;
    }
    std::vector<bool> outside = defined_;
    block(op.body, op.code);
    defined_ = std::move(outside);
    if (op.warps) first_warp_of_roles_ = op.first_warp;
    first_warp_around_ = around;
  }

  /// What one region makes the other does not see, nor what stands behind.
  void conditional(OpId id) {
    for (const BlockId region : {f_[id].body, f_[id].otherwise}) {
      if (!region) continue;
      std::vector<bool> outside = defined_;
      block(region, f_[id].code);
      defined_ = std::move(outside);
      op_ = &f_[f_[region].ops.back()];
      const std::vector<ValueId>& results = f_[id].results;
      if (op_->operands.size() != results.size())
        fail(fmt::format("it yields {} values, the {} has {} results", op_->operands.size(),
                         name_of(f_[id].code), results.size()),
             "yield a value for each result, in their order, in every region");
      for (std::size_t i = 0; i < results.size(); ++i) same(op_->operands[i], results[i], "result");
      op_ = &f_[id];
    }
  }

  /// The ops inside, where the tile's number and `arguments` more are defined.
  void region(const Op& op) {
    std::vector<bool> outside = defined_;
    for (const ValueId argument : f_[op.body].arguments) define(argument, {});
    if (op.axis) loops_.insert(op.axis);
    block(op.body, op.code);
    if (op.axis) loops_.erase(op.axis);
    defined_ = std::move(outside);
  }

  /// What an issue yields for its computed coordinates, in the tile that it names.
  void computed_positions(OpId id) {
    const Op& op = *op_;
    std::vector<bool> outside = defined_;
    // The copy engine asks for the first row of a box, threads for all rows.
    const bool bulk = f_[op.buffer].transport == Transport::tma;
    std::vector<AxisId> along;
    for (const Coordinate& c : op.coordinates)
      if (c.computed) along.push_back(c.axis);
    const std::set<AxisId> entered = entered_;
    for (const Coordinate& c : op.coordinates)
      if (c.axis) entered_.insert(f_.origin(c.axis));
    row_of_box(op);
    block(op.body, op.code);
    entered_ = entered;
    defined_ = std::move(outside);
    op_ = &f_[f_[op.body].ops.back()];
    if (op_->operands.size() != along.size())
      fail(fmt::format("it yields {} positions, the issue takes {}", op_->operands.size(),
                       along.size()),
           fmt::format("yield {} for each coordinate with \"by\", in the order of dimensions",
                       bulk ? "an i32 scalar" : "a tile of i32"));
    for (std::size_t i = 0; i < along.size(); ++i)
      if (const TileType wanted{DType::i32, bulk ? std::vector<AxisId>{} : std::vector{along[i]}};
          f_[op_->operands[i]].type != wanted)
        fail(fmt::format("{} is {} and should be {}", name(op_->operands[i]),
                         describe(f_, f_[op_->operands[i]].type), describe(f_, wanted)),
             "compute it from positions along the axis");
    op_ = &f_[id];
  }

  /// The region is asked once for every box of a tile that comes in several.
  void row_of_box(const Op& op) {
    const std::vector<ValueId>& arguments = f_[op.body].arguments;
    if (!op.box_rows && !arguments.empty())
      fail("its region takes the first row of a box, and its tile comes in one piece",
           "leave its line \"row\" out, or say how many rows each of several boxes has");
    if (!op.box_rows) return;
    if (arguments.size() != 1 || !(f_[arguments[0]].type == TileType{DType::i32, {}}))
      fail("its region takes the first row of a box, an i32 scalar",
           "begin it with row %row : i32");
    define(arguments[0], {});
  }

  void scan(OpId id) {
    const Op& op = *op_;
    over_tiles(op);
    const std::vector<ValueId>& arguments = f_[op.body].arguments;
    if (arguments.size() != 1 || !(f_[arguments[0]].type == TileType{DType::i32, {}}))
      fail("its region takes the number of a tile, an i32 scalar", "begin it with tile %t : i32");
    region(op);
    op_ = &f_[f_[op.body].ops.back()];
    const TileType scalar{DType::i1, {}}, tile{DType::i1, {op.axis}};
    const std::vector<ValueId>& found = op_->operands;
    if (found.size() != 2)
      fail(fmt::format("it yields {} conditions, a scan two", found.size()),
           "yield what may hold somewhere in the tile, and what surely holds everywhere");
    for (const ValueId value : found)
      if (!(f_[value].type == scalar) && !(f_[value].type == tile))
        fail(fmt::format("{} is {} and should be {}", name(value), describe(f_, f_[value].type),
                         describe(f_, tile)),
             "yield comparisons of scalars and of positions along the axis");
    op_ = &f_[id];
  }

  void loop(OpId id) {
    const Op& op = *op_;
    if (op.axis) over_tiles(op);
    const auto bounds = static_cast<std::size_t>(op.bounds);
    const std::vector<ValueId>& arguments = f_[op.body].arguments;
    const std::size_t carried = op.operands.size() - bounds;
    if (arguments.size() != carried + 1)
      fail(fmt::format("its region takes {} values; a tile's number and {} carried ones come in",
                       arguments.size(), carried),
           "declare one tile, and one carry for each of them");
    if (!(f_[arguments[0]].type == TileType{DType::i32, {}}))
      fail("the number of a tile is an i32 scalar", "write tile %t : i32");
    for (std::size_t i = 0; i < carried; ++i) {
      same(op.operands[bounds + i], arguments[i + 1]);
      same(op.results[i], arguments[i + 1]);
    }
    for (std::size_t i = 0; i < carried; ++i)
      stores_.carry(op.operands[bounds + i], arguments[i + 1]);
    region(op);

    op_ = &f_[f_[op.body].ops.back()];
    if (op_->operands.size() != carried)
      fail(fmt::format("it yields {} values, the loop carries {}", op_->operands.size(), carried),
           "yield the next value of each, in the order of the carries");
    for (std::size_t i = 0; i < carried; ++i) same(op_->operands[i], arguments[i + 1]);
    op_ = &f_[id];
  }

  // Values.

  void define(ValueId value, OpId by) {
    if (!value || value.index >= f_.values.size())
      fail("a result is missing", "give every result a name");
    if (ever_defined_.contains(value))
      fail(fmt::format("{} is defined twice", name(value)), "give one of them another name");
    if (f_[value].definition != by)
      fail(fmt::format("{} names another op as its definition", name(value)),
           "let the value name the op that makes it");
    defined_[value.index] = true;
    ever_defined_.insert(value);
    layout(value);
    if (by) stores_.define(value, f_[by]);
  }

  void layout(ValueId id) {
    const Value& value = f_[id];
    if (value.layout.axes.empty()) return;
    if (value.layout.axes.size() != value.type.axes.size())
      fail(fmt::format("the layout of {} has {} axes, its type {}", name(id),
                       value.layout.axes.size(), value.type.axes.size()),
           "lay out every axis of the type, in its order");
    for (std::size_t i = 0; i < value.layout.axes.size(); ++i) {
      const Axis& axis = f_[value.type.axes[i]];
      if (axis.tile && value.layout.axes[i].length() != axis.tile)
        fail(fmt::format("the layout of {} lays out {} elements of {}, a tile has {}", name(id),
                         value.layout.axes[i].length(), axis.name, axis.tile),
             "let warps, fragments, slots and lanes multiply to the tile");
    }
  }

  bool is_parallel(AxisId axis) const {
    return f_[axis].kind == AxisKind::parallel || f_[axis].kind == AxisKind::parallel_tiles;
  }

  void same(ValueId value, ValueId argument, std::string_view what = "carried") {
    if (!(f_[value].type == f_[argument].type))
      fail(fmt::format("{} is {}, the {} {} is {}", name(value), describe(f_, f_[value].type), what,
                       name(argument), describe(f_, f_[argument].type)),
           "start, carry and yield values of one type; cast one of them");
  }

  std::string name(ValueId value) const { return print(f_, value); }

  [[noreturn]] void fail(std::string why, std::string fix) const {
    refuse_op(f_, *op_, std::move(why), std::move(fix));
  }

  const Function& f_;
  const Op* op_ = nullptr;
  std::vector<bool> defined_;
  std::set<ValueId> ever_defined_;
  std::set<AxisId> loops_;
  std::set<AxisId> entered_;           // axes at a tile that an op in front has entered
  std::set<AxisId> placed_;            // whose segment the block knows here
  int first_warp_of_roles_ = INT_MAX;  // of the role above, or behind the role around
  int first_warp_around_ = 0;          // of the role around
  bool works_ = false;                 // something that is not a scalar has been seen
  bool in_tile_loop_ = false;          // where a tile beyond its segment is computed for nothing
  StoreRules stores_;
};

}  // namespace

void verify(const Function& f) { Verifier(f).run(); }

void verify_after(const Function& f, std::string_view pass) {
  try {
    verify(f);
  } catch (const SpecError& error) {
    throw InternalError(fmt::format("pass {} left an invalid program\n{}", pass, error.what()));
  }
}

}  // namespace flashcore::ir
