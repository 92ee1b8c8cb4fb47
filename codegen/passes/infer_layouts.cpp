// Every axis of every register tile is a node. Operations that move no elements between threads
// join the nodes of an axis: elementwise operations, reductions (the axes that remain), loops
// (carried values). Products give the joined sets the layouts of their instruction; sets that no
// product touches get a plain layout. A computed left operand that stage_operands has not sent
// through shared memory stays in registers, because the layout of the accumulator, packed in pairs,
// is the layout of the left operand. A conversion joins no nodes: its two sides have layouts of
// their own.
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_layouts.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/place_loads.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

class LayoutInference {
 public:
  LayoutInference(Function& f, const Schedule& schedule)
      : f_(f), schedule_(schedule), grid_{schedule.warps_m, schedule.warps_n} {}

  void run() {
    place_loads(f_);
    nodes_.resize(f_.values.size() * 2);
    for (Node& node : nodes_) node.parent = &node;
    for_each_op(f_, f_.body, [&](Op& op, BlockId) {
      join(op);
      if (op.code != OpCode::dot) return;
      has_products_ = true;
      grid_.by_columns = grid_.by_columns || instruction_of(op).warps > 1;
    });
    for_each_op(f_, f_.body, [&](Op& op, BlockId) { anchor(op); });
    for_each_op(f_, f_.body, [&](Op& op, BlockId) { note_pairs(op); });
    for_each_op(f_, f_.body, [&](Op& op, BlockId) { note_access(op); });
    for_each_op(f_, f_.body, [&](Op& op, BlockId) { choose_plain(op); });
    for_each_op(f_, f_.body, [&](Op& op, BlockId) { choose_whole_vectors(op); });
    for_each_op(f_, f_.body, [&](Op& op, BlockId) {
      for (ValueId value : op.results) choose_vector(value, schedule_.warps_m * schedule_.warps_n);
    });
    for (std::size_t i = 0; i < f_.values.size(); ++i) assign(ValueId(i));
    for_each_op(f_, f_.body, [&](Op& op, BlockId) { check(op); });
  }

 private:
  [[nodiscard]] bool in_shared(ValueId value) const {
    return f_[value].layout.space == Space::shared;
  }
  [[nodiscard]] bool is_tile(ValueId value) const { return f_[value].type.axes.size() == 2; }

  // ---- nodes

  /// What is known of a set of joined nodes stands in its root.
  struct Node {
    Node* parent = nullptr;
    std::optional<AxisLayout> anchor;
    bool in_pairs = false;  ///< columns of tiles that are packed in pairs
    int widest_access = 0;  ///< bytes of an element in memory
  };

  /// The root; null where an axis has no node.
  Node* node(ValueId value, AxisId axis) {
    const auto& axes = f_[value].type.axes;
    const auto at = std::ranges::find(axes, axis);
    if (at == axes.end() || in_shared(value) || is_source(f_, value)) return nullptr;
    Node* n = &nodes_[value.index * 2 + static_cast<std::size_t>(at - axes.begin())];
    while (n->parent != n) n = n->parent = n->parent->parent;
    return n;
  }
  void join_along(AxisId axis, ValueId a, ValueId b) {
    Node *na = node(a, axis), *nb = node(b, axis);
    if (na && nb) na->parent = nb;
  }
  void join_values(ValueId a, ValueId b) {
    for (AxisId axis : f_[a].type.axes) join_along(axis, a, b);
  }

  void join(const Op& op) {
    switch (kind_of(op.code)) {
      case OpKind::elementwise:
      case OpKind::reduction:
        for (ValueId operand : op.operands) join_values(operand, op.results[0]);
        break;
      case OpKind::tile:
        if (op.code == OpCode::dot) {
          if (op.operands.size() == 3) join_values(op.operands[2], op.results[0]);
          join_values(op.operands[0], op.results[0]);
        } else if (op.code == OpCode::combine_partials && is_tile(op.results[0])) {
          // Partials of a tile have whole rows in each warp; their sum may have another layout along
          // the columns.
          join_along(f_[op.results[0]].type.axes[0], op.operands[0], op.results[0]);
        } else if (op.code != OpCode::convert) {
          join_values(op.operands[0], op.results[0]);
        }
        break;
      case OpKind::control:
        if (op.code == OpCode::loop)
          for (const Carried& carried : carried_by(f_, op))
            for (ValueId value : {carried.start, carried.next, carried.result})
              join_values(value, carried.argument);
        break;
      case OpKind::memory:
        // The positions of a tile's elements lie where the elements do.
        for (const Coordinate& c : op.coordinates)
          if (is_computed(f_, c))
            join_values(c.value, op.code == OpCode::store ? op.operands[0] : op.results[0]);
        break;
      default:
        break;
    }
  }

  // ---- anchors

  void set_anchor(ValueId value, AxisId axis, const AxisLayout& layout, const Location& where) {
    Node* n = node(value, axis);
    if (!n) return;
    if (n->anchor && !(*n->anchor == layout))
      throw ScheduleError(
          {fmt::format("two products need different register layouts of axis {}", f_[axis].name),
           fmt::format("one spreads it over {} warps, the other over {}", n->anchor->warps,
                       layout.warps),
           "warps_n = 1, so that a row of scores stays in one warp", where});
    n->anchor = layout;
  }

  void anchor(const Op& op) {
    if (op.code == OpCode::combine_partials && is_tile(op.results[0])) {
      const AxisId columns = f_[op.results[0]].type.axes[1];
      set_anchor(op.results[0], columns, accumulator_columns(f_[columns].tile, grid_), op.where);
    }
    if (op.code != OpCode::dot) return;
    const TensorInstruction& instruction = instruction_of(op);
    const AxisId rows = f_[op.results[0]].type.axes[0], columns = f_[op.results[0]].type.axes[1];
    const AxisId inner = inner_axis(f_, op);
    const auto anchor_sum = [&](int row_warps, int row_divisor, int column_warps, int divisor) {
      set_anchor(op.results[0], rows,
                 spread(instruction.sum_rows, f_[rows].tile, row_warps, row_divisor), op.where);
      set_anchor(op.results[0], columns,
                 spread(instruction.sum_columns, f_[columns].tile, column_warps, divisor),
                 op.where);
    };
    // The warps along the columns of the product divide either these or the terms of its sum among
    // them.
    const bool cuts_sum = op.scope == ReductionScope::warp;
    const int column_warps = cuts_sum ? 1 : schedule_.warps_n,
              term_warps = cuts_sum ? schedule_.warps_n : 1;
    if (const int groups = column_groups(op, instruction, rows, columns))
      return anchor_sum(instruction.warps, 1, groups, instruction.warps);
    require_instruction_rows(op, instruction, rows);
    require_multiple(op, rows, instruction.rows_of_warp() * schedule_.warps_m, "warps_m");
    if (cuts_sum)
      require_multiple(op, inner, 16 * term_warps, "warps_n");
    else
      require_multiple(op, columns, instruction.column_step * column_warps, "warps_n");
    anchor_sum(schedule_.warps_m, grid_.row_divisor(), column_warps, grid_.column_divisor());
    if (instruction.computed_left == ComputedOperand::registers && !in_shared(op.operands[0]))
      set_anchor(op.operands[0], inner,
                 spread(instruction.left_terms, f_[inner].tile, term_warps, grid_.column_divisor()),
                 op.where);
  }

  /// Among how many warpgroups the columns of a product are divided; 0 where its rows are. They are
  /// where the rows of one instruction are all that the product has, where both operands lie in shared
  /// memory, so that every warpgroup can read them, and where the result is stored and nothing else
  /// reads it: a row that several warpgroups held would have to be reduced through shared memory.
  [[nodiscard]] int column_groups(const Op& op, const TensorInstruction& instruction, AxisId rows,
                                  AxisId columns) const {
    const int groups = schedule_.warps_m / std::max(instruction.warps, 1);
    constexpr int panel = 64;  // columns of the right operand, of which each reads some, or a half
    const int tile = f_[columns].tile;
    const bool fits = instruction.rows_once && groups > 1 && f_[rows].tile == instruction.rows &&
                      (tile % (panel * groups) == 0 || (groups == 2 && tile == panel));
    const Op* right = f_.definition(op.operands[1]);
    if (!fits || !in_shared(op.operands[0]) || !right || right->code == OpCode::transpose) return 0;
    const bool stored = all_readers(f_, f_.body, op.results[0], [](const Op& reader, std::size_t) {
      return reader.code == OpCode::store;
    });
    return stored ? groups : 0;
  }

  /// Tiles that no loop over instructions would make.
  void require_instruction_rows(const Op& op, const TensorInstruction& instruction,
                                AxisId rows) const {
    const int held = instruction.rows_of_warp() * schedule_.warps_m, tile = f_[rows].tile;
    if (instruction.rows_once && tile != held)
      throw ScheduleError({fmt::format("a tile of {} along {}", tile, f_[rows].name),
                           fmt::format("each of the {} warpgroups makes {} rows of a product",
                                       schedule_.warps_m / instruction.warps, instruction.rows),
                           tile % instruction.rows == 0
                               ? fmt::format("warps_m = {}", tile / instruction.rows_of_warp())
                               : fmt::format("a tile of {}", held),
                           op.where});
  }

  void require_multiple(const Op& op, AxisId axis, int step, const char* field) {
    if (f_[axis].tile % step == 0) return;
    throw ScheduleError(
        {fmt::format("a tile of {} along {}", f_[axis].tile, f_[axis].name),
         fmt::format("the rows or columns of a warp in a product are a multiple of 16, so with {} "
                     "= {} the tile must "
                     "be a multiple of {}",
                     field, step / 16, step),
         fmt::format("a tile of {}, or fewer warps", (f_[axis].tile / step + 1) * step), op.where});
  }

  /// Tiles of 16 bits go to shared memory in pairs of neighbouring columns.
  void note_pairs(const Op& op) {
    if (op.code != OpCode::convert || !op.buffer || !is_half(f_[op.buffer].dtype)) return;
    if (Node* n = node(op.operands[0], f_[op.operands[0]].type.axes.back())) n->in_pairs = true;
  }

  /// Bytes of an element where a tile is loaded or stored.
  void note_access(const Op& op) {
    if (op.code != OpCode::load && op.code != OpCode::store) return;
    const ValueId tile = op.code == OpCode::load ? op.results[0] : op.operands[0];
    if (f_[tile].type.is_scalar()) return;
    if (Node* n = node(tile, f_[tile].type.axes.back()))
      n->widest_access = std::max(n->widest_access, size_of(f_[op.tensor].dtype));
  }

  /// Layouts for tiles that no product reaches.
  void choose_plain(const Op& op) {
    for (ValueId value : op.results) {
      const TileType& type = f_[value].type;
      if (!is_tile(value)) continue;
      Node *rows = node(value, type.axes[0]), *columns = node(value, type.axes[1]);
      if (!rows || !columns) continue;
      const Axis &row_axis = f_[type.axes[0]], &column_axis = f_[type.axes[1]];
      // Vector accesses need an alignment that only a constant length promises.
      const bool in_pairs = columns->in_pairs;
      const int length = column_axis.fixed_length().value_or(1);
      // A lane's 16 bytes of a row: fewer lanes a row, and so fewer addresses and shuffles.
      const bool in_chunks = columns->widest_access == 2 && length % 8 == 0 && !in_pairs;
      const int slots = in_chunks ? 8 : length % 4 == 0 ? 4 : in_pairs ? 2 : 1;
      const int warps = schedule_.warps_m * schedule_.warps_n;
      const PlainLayout plain =
          schedule_.softmax == Softmax::shared && has_products_
              ? row_tile(row_axis.tile, column_axis.tile, warps)
              : plain_tile(row_axis.tile, column_axis.tile, warps, slots, in_pairs || in_chunks);
      const bool plain_rows = rows->anchor.value_or(plain.rows) == plain.rows;
      const bool plain_columns = columns->anchor.value_or(plain.columns) == plain.columns;
      if (!columns->anchor)
        columns->anchor = plain_rows ? plain.columns : accumulator_columns(column_axis.tile, grid_);
      if (!rows->anchor)
        rows->anchor = plain_columns ? plain.rows : accumulator_rows(row_axis.tile, grid_);
    }
  }

  /// Every warp holds all of a vector that is reduced to a scalar, and all of a tile that it
  /// scans: then nothing passes between warps.
  void choose_whole_vectors(const Op& op) {
    std::vector<ValueId> vectors;
    if (kind_of(op.code) == OpKind::reduction && f_[op.results[0]].type.is_scalar())
      vectors = op.operands;
    if (op.code == OpCode::scan_tiles) vectors = last_of(f_, op.body).operands;
    for (ValueId value : vectors) choose_vector(value, 1);
  }

  void choose_vector(ValueId value, int warps) {
    if (f_[value].type.axes.size() != 1) return;
    const AxisId axis = f_[value].type.axes[0];
    Node* n = node(value, axis);
    if (n && !n->anchor) n->anchor = plain_vector(f_[axis].tile, warps);
  }

  void assign(ValueId value) {
    Layout& layout = f_[value].layout;
    if (layout.space != Space::none || is_source(f_, value) || f_[value].type.is_scalar()) return;
    for (AxisId axis : f_[value].type.axes) {
      const Node* n = node(value, axis);
      if (!n || !n->anchor) return layout.axes.clear();
      layout.axes.push_back(*n->anchor);
    }
    const bool opaque = is_tile(value) && layout.axes[0].slots == 16;  // the blocks of a product
    layout.space = is_left_operand(value) ? Space::operand
                   : opaque               ? Space::opaque
                                          : Space::registers;
  }

  [[nodiscard]] bool is_left_operand(ValueId value) const {
    return is_half(f_[value].type.dtype) && stays_packed(f_, value, /*can_write_packed=*/true);
  }

  void check_reduction(const Op& op) const {
    const TileType& type = f_[op.operands[0]].type;
    const int warps = layout_along(f_, op.operands[0], op.axis).warps;
    if (warps == 1) return;
    const std::string& axis = f_[op.axis].name;
    if (type.axes.size() == 1)
      throw ScheduleError(
          {fmt::format("a reduction of {} to a scalar with {} warps along it", axis, warps),
           "one warp computes it, and other operations divide the vector among warps",
           "warps_m = 1 and warps_n = 1", op.where});
    // Partials of f32 are combined through shared memory (exchange_partials).
    if (type.dtype == DType::f32) return;
    throw ScheduleError(
        {fmt::format("a reduction of integers along {} with {} warps along it", axis, warps),
         "one warp computes it, and this layout divides the tile among warps",
         "warps_m = 1 and warps_n = 1, or a cast to f32 before it", op.where});
  }

  void check(const Op& op) const {
    if (kind_of(op.code) == OpKind::reduction) check_reduction(op);
    if (op.code == OpCode::transpose && !in_shared(op.operands[0]))
      throw SpecError({"a transpose of a tile in registers",
                       "only a product can read its operand transposed",
                       "load or build the tile with its axes in the other order", op.where});
    if (op.code != OpCode::dot) return;
    const Op* left = f_.definition(op.operands[0]);
    if (f_[op.operands[0]].layout.space != Space::shared && !instruction_of(op).takes_sums &&
        (!left || left->code != OpCode::cast))
      throw SpecError(
          {fmt::format("a product of {} whose left operand is a computed 16-bit tile, but no cast",
                       name_of(instruction_of(op).name)),
           "the cast from f32 is what packs a tile into a product's registers",
           "compute in f32 and cast last", op.where});
    if (f_[op.operands[1]].layout.space != Space::shared)
      throw ScheduleError({fmt::format("a product of {} whose right operand is computed",
                                       name_of(instruction_of(op).name)),
                           "it goes through shared memory, and the warpgroups of a block do not "
                           "synchronise for that",
                           "instruction = mma_m16n8k16 and copy = cp_async", op.where});
  }

  Function& f_;
  const Schedule& schedule_;
  WarpGrid grid_;
  bool has_products_ = false;
  std::vector<Node> nodes_;  ///< two a value, one for each of its axes
};

}  // namespace

void infer_layouts(Function& f, const PassContext& context) {
  LayoutInference(f, context.schedule).run();
}

}  // namespace flashcore
