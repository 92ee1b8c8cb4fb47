#include "dsl/ir/verify_op.h"

#include <algorithm>

#include <fmt/format.h>

#include "dsl/ir/print.h"
#include "dsl/ir/type_rules.h"
#include "dsl/ir/verify_attributes.h"

namespace flashcore::ir {
namespace {

/// The operands and the results of an op.
class OpVerifier {
 public:
  OpVerifier(const Function& f, const Op& op) : f_(f), op_(op) {}

  void run() {
    switch (op_.code) {
      case OpCode::constant:
      case OpCode::undefined:
        results(1);
        break;
      case OpCode::nest:
        if (!op_.body || op_.body.index >= f_.blocks.size())
          fail("it has no region", "write its operations in braces behind it");
        operands(0);
        break;
      case OpCode::cast:
        results(1);
        result_is(cast_type(f_, op_, f_[op_.results[0]].type.dtype));
        break;
      case OpCode::store:
        results(0);
        check_store(f_, op_);
        break;
      case OpCode::wait_turn:
      case OpCode::release_turn:
        operands(1);
        results(0);
        break;
      case OpCode::segment:
        segment();
        break;
      case OpCode::enter:
        operands(1);
        results(0);
        break;
      case OpCode::loop:
        loop();
        break;
      case OpCode::tile_loop:
        if (!op_.body || op_.body.index >= f_.blocks.size())
          fail("it has no region", "write its operations in braces behind it");
        operands(op_.scheduler == TileScheduler::consecutive ? 2 : 1);
        results(0);
        break;
      case OpCode::find_segment:
        input();
        if (f_[op_.tensor].dtype != DType::i32 || f_[op_.tensor].dims.size() != 1)
          fail(fmt::format("{} is no list of i32", f_[op_.tensor].name),
               "name the input that says where each segment begins");
        operands(2);
        results(3);
        if (f_[op_.results[2]].type != TileType{DType::i1, {}})
          fail(fmt::format("{} is {}", name(op_.results[2]), describe(f_, f_[op_.results[2]].type)),
               "its third result is an i1 scalar");
        numbers(2);
        break;
      case OpCode::divide:
        operands(2);
        results(2);
        numbers(2);
        break;
      case OpCode::claim_tile:
        operands(2);
        results(1);
        result_is({DType::i32, {}});
        break;
      case OpCode::scan_tiles:
        if (!op_.body || op_.body.index >= f_.blocks.size())
          fail("it has no region", "write its operations in braces behind it");
        operands(2);
        results(0);
        holds_tiles();
        break;
      case OpCode::next_tile:
        operands(2);
        results(1);
        result_is({DType::i32, {}});
        holds_tiles();
        break;
      case OpCode::issue:
        issue();
        break;
      case OpCode::acquire:
      case OpCode::commit:
      case OpCode::release:
        operands(0);
        results(0);
        break;
      case OpCode::role:
        if (!op_.body || op_.body.index >= f_.blocks.size())
          fail("it has no region", "write its operations in braces behind it");
        operands(0);
        results(0);
        break;
      case OpCode::if_:
        conditional();
        break;
      case OpCode::clear_rows:
        results(0);
        operand_count(2);
        scalars(1, 2);
        break;
      case OpCode::tile_is_full:
        scalars(0, operand_count(1));
        results(1);
        result_is({DType::i1, {}});
        holds_tiles();
        break;
      case OpCode::wait_products:
        if (op_.results.size() != op_.operands.size())
          fail("it waits for other products than it names", "name one product for each result");
        for (std::size_t i = 0; i < op_.results.size(); ++i)
          if (!(f_[op_.results[i]].type == f_[op_.operands[i]].type))
            fail(fmt::format("{} is waited for as {}, which is of another type",
                             name(op_.operands[i]), name(op_.results[i])),
                 "give results the types of their products");
        break;
      case OpCode::wait:
        if (!op_.buffer) {
          results(0);
          break;
        }
        wait();
        if (f_[op_.buffer].holds_scalars()) {
          holds_scalars(op_.results);
          break;
        }
        [[fallthrough]];
      case OpCode::read_slot:
        results(1);
        scalars(0, op_.operands.size());
        if (f_[op_.results[0]].type.dtype != f_[op_.buffer].dtype)
          fail(
              fmt::format("buffer {} holds {}", f_[op_.buffer].name, name_of(f_[op_.buffer].dtype)),
              "give the result the buffer's type");
        fits_buffer(f_[op_.results[0]].type.axes);
        break;
      case OpCode::beside:
        results(1);
        if (op_.operands.size() != 1)
          fail(fmt::format("it has {} operands", op_.operands.size()),
               "write the tile in whose slot the vector lies");
        fits_buffer(f_[op_.results[0]].type.axes);
        break;
      case OpCode::barrier:
      case OpCode::wait_for_kernels:
      case OpCode::launch_dependents:
      case OpCode::init_mbarriers:
      case OpCode::enter_cluster:
      case OpCode::cluster_wait:
      case OpCode::cluster_sync:
      case OpCode::ping_pong_open:
      case OpCode::ping_pong_close:
      case OpCode::drain_stores:
      case OpCode::complete_stores:
      case OpCode::ping_pong_wait:
      case OpCode::ping_pong_arrive:
      case OpCode::fence_async:
      case OpCode::meet_warpgroup:
      case OpCode::meet_role:
      case OpCode::yield:
        results(0);
        break;
      default:
        if (op_.code == OpCode::load || op_.code == OpCode::searchsorted) input();
        if (op_.code == OpCode::cluster_rank || op_.code == OpCode::owns_rows) among();
        // What goes to another block is the rows of some warps only.
        if (op_.code == OpCode::convert && op_.buffer && !op_.blocks && !op_.operands.empty())
          fits_buffer(f_[op_.operands[0]].type.axes);
        if (kind_of(op_.code) != OpKind::source && op_.code != OpCode::load && op_.operands.empty())
          fail("it has no operand", "write what it is applied to behind its name");
        results(1);
        result_is(infer_type(f_, op_));
    }
  }

 private:
  /// The first so many results.
  void numbers(std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i)
      if (f_[op_.results[i]].type != TileType{DType::i32, {}})
        fail(fmt::format("{} is {}", name(op_.results[i]), describe(f_, f_[op_.results[i]].type)),
             "its numbers are i32 scalars");
  }

  void among() const {
    if (op_.blocks < 2)
      fail(fmt::format("it is one of {} blocks", op_.blocks), "a cluster has two or more blocks");
  }

  void segment() {
    results(0);
    if (!f_[op_.axis].ragged)
      fail(fmt::format("{} is not ragged", f_[op_.axis].name), "declare the axis ragged");
    if (op_.operands.size() != 2)
      fail(fmt::format("it has {} operands", op_.operands.size()),
           "a segment has two operands: where the axis begins and where it ends");
    scalars(0, 2);
  }

  void wait() const {
    if (op_.operands.size() > 1)
      fail(fmt::format("it has {} operands", op_.operands.size()),
           "a wait for a slot has none, or the number of the tile in it");
    if (op_.pending < 0 || op_.pending >= f_[op_.buffer].stages)
      fail(fmt::format("{} slots of {} are held already, which has {}", op_.pending,
                       f_[op_.buffer].name, f_[op_.buffer].stages),
           "release one of them in front of it");
  }

  void input() {
    if (f_[op_.tensor].output)
      fail(fmt::format("{} is an output", f_[op_.tensor].name),
           "read an input; the elements of an output are only written");
  }

  void issue() {
    results(0);
    if (issues_values(f_, op_)) return issue_values();
    input();
    fits_buffer(accessed_axes(f_, op_));
    computed_positions();
    if (op_.box_rows) boxes();
    if (f_[op_.buffer].transport == Transport::tma)
      bulk_copy();
    else
      copy();
  }

  void issue_values() {
    if (f_[op_.buffer].holds_scalars()) return holds_scalars(op_.operands);
    operand_count(1);
    fits_buffer(f_[op_.operands[0]].type.axes);
  }

  /// An issue computes positions itself: those of the tile that it copies.
  void computed_positions() const {
    bool computed = false;
    const bool bulk = f_[op_.buffer].transport == Transport::tma;
    for (const Coordinate& c : op_.coordinates) {
      computed = computed || c.computed;
      if (c.computed && !c.axis && !bulk)
        fail("threads copy rows to which one scalar position is computed",
             "compute the position in front of the loop");
      if (is_computed(f_, c) && !c.computed)
        fail(fmt::format("{} holds positions in the current tile", name(c.value)),
             "compute them in the region of the issue, and name their axis behind \"by\"");
    }
    if (computed != static_cast<bool>(op_.body))
      fail(computed ? "it has computed positions and no region" : "its region computes nothing",
           "name the axis of each computed coordinate behind \"by\", and yield its positions");
  }

  /// What the copy engine brings in several boxes, each from a place of its own.
  void boxes() const {
    const Buffer& buffer = f_[op_.buffer];
    const std::string without = fmt::format("leave \"boxes of {} rows\" out", op_.box_rows);
    if (buffer.transport != Transport::tma)
      fail(
          fmt::format("tiles come to {} by {}, row by row", buffer.name, name_of(buffer.transport)),
          without);
    if (!op_.body)
      fail("where each box lies is not computed", "compute it in a region, or " + without);
    const int rows = buffer.rows / buffer.blocks;
    if (op_.box_rows % box_row_step)
      fail(fmt::format("boxes of {} rows begin between periods of the swizzle, of {} rows each",
                       op_.box_rows, box_row_step),
           fmt::format("a multiple of {}", box_row_step));
    if (rows % op_.box_rows)
      fail(
          fmt::format("boxes of {} rows do not make up the {} rows of a tile of {}{}", op_.box_rows,
                      rows, buffer.name, buffer.blocks > 1 ? " that a block loads" : ""),
          fmt::format("a number of rows that divides {}", rows));
  }

  void bulk_copy() {
    if (op_.operands.size() > 1)
      fail(fmt::format("it has {} operands", op_.operands.size()),
           "it fills the slot that is next, or the one whose number it is told");
    scalars(0, op_.operands.size());
  }

  void copy() {
    if (op_.operands.size() == 1 || op_.operands.size() > 3)
      fail(fmt::format("it has {} operands", op_.operands.size()),
           "a copy takes none, or the tile and the slot, or both and a condition");
    scalars(0, std::min<std::size_t>(op_.operands.size(), 2));
    if (op_.operands.size() == 3 && f_[op_.operands[2]].type != TileType{DType::i1, {}})
      fail(fmt::format("{} is {} and should be an i1 scalar", name(op_.operands[2]),
                       describe(f_, f_[op_.operands[2]].type)),
           "compare two i32 scalars");
  }

  /// Slots hold whole tiles, in the order of their axes.
  void fits_buffer(const std::vector<AxisId>& axes) {
    if (axes.size() != 2) return;
    const Buffer& buffer = f_[op_.buffer];
    const int rows = f_[axes[0]].tile, columns = f_[axes[1]].tile;
    if ((rows && rows != buffer.rows) || (columns && columns != buffer.columns))
      fail(fmt::format("a slot of {} is {} x {}, the tile is {} x {}", buffer.name, buffer.rows,
                       buffer.columns, rows, columns),
           "declare the buffer as large as the tile, or give the axes its lengths");
  }

  void conditional() {
    if (!op_.body || op_.body.index >= f_.blocks.size())
      fail("it has no region", "write its operations in braces behind it");
    operand_count(1);
    if (f_[op_.operands[0]].type != TileType{DType::i1, {}})
      fail(fmt::format("{} is {} and should be an i1 scalar", name(op_.operands[0]),
                       describe(f_, f_[op_.operands[0]].type)),
           "compare two scalars, or ask all_lanes of a tile of conditions");
    if (!op_.results.empty() && !op_.otherwise)
      fail("it has results and no else", "yield them in a region behind \"else\" as well");
  }

  void loop() {
    if (!op_.body || op_.body.index >= f_.blocks.size())
      fail("it has no region", "write its operations in braces behind it");
    const auto bounds = static_cast<std::size_t>(op_.bounds);
    if ((bounds != 0 && bounds != 2) || bounds > op_.operands.size())
      fail(fmt::format("it has {} bounds", bounds), "a loop has none or two");
    if (!op_.axis && bounds == 0)
      fail("it has neither an axis nor bounds", "name an axis, or give it from %a to %b");
    if (op_.buffer) {
      if (bounds != 2)
        fail("a loop over what a scan found has two bounds", "give it from %begin to %end");
      holds_tiles();
    }
    scalars(0, bounds);
    results(op_.operands.size() - bounds);
  }

  /// A slot is a row of as many scalars as are handed on at once.
  void holds_scalars(const std::vector<ValueId>& scalars) {
    const Buffer& buffer = f_[op_.buffer];
    const auto is_number = [&](ValueId v) { return f_[v].type == TileType{DType::i32, {}}; };
    if (buffer.dtype != DType::i32 || buffer.rows != 1 ||
        buffer.columns != static_cast<int>(scalars.size()) ||
        !std::ranges::all_of(scalars, is_number))
      fail(fmt::format("a slot of {} is {} x {} of {}, the scalars of the operation 1 x {}",
                       buffer.name, buffer.rows, buffer.columns, name_of(buffer.dtype),
                       scalars.size()),
           "declare the buffer as i32 [1, n] for n scalars, each of them i32");
  }

  /// Scans write words of bits.
  void holds_tiles() {
    if (f_[op_.buffer].dtype != DType::i32)
      fail(fmt::format("buffer {} holds {}, a scan's i32", f_[op_.buffer].name,
                       name_of(f_[op_.buffer].dtype)),
           "declare the buffer with i32");
  }

  void operands(std::size_t count) {
    if (op_.operands.size() != count)
      fail(fmt::format("it has {} operands and should have {}", op_.operands.size(), count),
           count ? fmt::format("give it {} i32 scalars", count) : "leave them out");
    scalars(0, count);
  }

  std::size_t operand_count(std::size_t count) const {
    if (op_.operands.size() != count)
      fail(fmt::format("it has {} operands and should have {}", op_.operands.size(), count),
           "write one value behind its name");
    return count;
  }

  void results(std::size_t count) {
    if (op_.results.size() != count)
      fail(fmt::format("it has {} results and should have {}", op_.results.size(), count),
           count ? "a name for each before the \"=\", and its type behind the \":\""
                 : "leave them out, with the \"=\"");
  }

  void result_is(const TileType& type) {
    if (f_[op_.results[0]].type == type) return;
    const std::string given = describe(f_, f_[op_.results[0]].type), right = describe(f_, type);
    fail(fmt::format("its result is {} and should be {}", given, right),
         fmt::format("{} as its type, or what gives {}", right, given));
  }

  void scalars(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (!(f_[op_.operands[i]].type == TileType{DType::i32, {}}))
        fail(fmt::format("{} is {} and should be an i32 scalar", name(op_.operands[i]),
                         describe(f_, f_[op_.operands[i]].type)),
             "take an index, an extent, a constant : i32 or what is computed from them");
  }

  std::string name(ValueId value) const { return print(f_, value); }

  [[noreturn]] void fail(std::string why, std::string fix) const {
    refuse_op(f_, op_, std::move(why), std::move(fix));
  }

  const Function& f_;
  const Op& op_;
};

}  // namespace

void verify_op(const Function& f, const Op& op) {
  verify_attributes(f, op);
  OpVerifier(f, op).run();
}

void refuse_op(const Function& f, const Op& op, std::string why, std::string fix) {
  throw SpecError({fmt::format("invalid operation: {}", print(f, op)), std::move(why),
                   std::move(fix), op.where});
}

}  // namespace flashcore::ir
