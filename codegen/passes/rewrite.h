// What several passes do to a function: count uses, rename values, rebuild the ops of a block.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/analysis/visit.h"
#include "dsl/ir/builder.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// How many operands and coordinates of live ops read each value.
std::vector<int> count_uses(const ir::Function& f);

/// Which ops are there for probes alone (dsl/probes.h): stores to a probe, and what only those read.
/// Rules that ask who reads a value leave them out, so that probing a kernel does not change it.
class ProbeOps {
 public:
  explicit ProbeOps(const ir::Function& f);
  [[nodiscard]] bool any() const { return !observes_.empty(); }
  [[nodiscard]] bool has(ir::OpId op) const {
    return op.index < observes_.size() && observes_[op.index];
  }

 private:
  std::vector<bool> observes_;  ///< by op; empty where the program has no probe
};

/// As count_uses, without what probes read.
std::vector<int> count_uses_without_probes(const ir::Function& f);

/// Whether a value decides what some f32 output holds; probes are none.
bool reaches_f32_output(const ir::Function& f, ir::ValueId value);

/// `carried * factor + added`, or `carried + added` without a factor.
struct CarriedSum {
  ir::ValueId factor, added;  ///< what a product adds is no value: none
  ir::ValueId scaled;         ///< `carried * factor`, where it is one
};

/// What a loop makes of a value that it carries, if that is such a sum.
std::optional<CarriedSum> carried_sum(const ir::Function& f, ir::ValueId next, ir::ValueId carried);

/// The rows of a tile that a loop adds up, from zero on, and rounds to the left operand of a product.
struct SumOfOperand {
  ir::ValueId factor;   ///< what scales the sum in an iteration, if anything does
  ir::ValueId total;    ///< what an iteration adds, on tiles that no mask cuts,
  ir::ValueId terms;    ///< and of what it is the sum
  ir::ValueId rounded;  ///< the operand made of that,
  ir::OpId product;     ///< and the product that takes it
};

/// Carried value `i` of a loop, if it is such a sum and nothing else reads what it adds. `uses` says how
/// many read each value.
std::optional<SumOfOperand> sum_of_operand(const ir::Function& f, const ir::Op& loop, std::size_t i,
                                           const std::vector<int>& uses);

/// The ops of a block, in order, that read a value, themselves or in a region of theirs.
std::vector<ir::OpId> readers_of(const ir::Function& f, ir::BlockId block, ir::ValueId value);

/// Whether a role's warps have roles of their own, which do all that it does.
bool is_divided(const ir::Function& f, const ir::Op& role);

/// The roles of a program that are not divided.
std::vector<ir::OpId> roles_of(const ir::Function& f);

/// Where a role works: its region, or that of the `if` in it by which one thread does all its work.
ir::BlockId work_of(const ir::Function& f, const ir::Op& role);

/// Whether that is such an `if`.
bool works_in_one_thread(const ir::Function& f, const ir::Op& role);

/// Makes an op, or every live op, read `to` where it read `from`.
void replace_use(ir::Op& op, ir::ValueId from, ir::ValueId to);
void replace_uses(ir::Function& f, ir::ValueId from, ir::ValueId to);
/// The same for the ops of a block from where a builder stands on, and those of their regions: all, or
/// those that pass a test.
void replace_uses_behind(const ir::Builder& b, ir::ValueId from, ir::ValueId to,
                         const std::function<bool(ir::OpId)>& concerns = {});

/// Gives a value a name, and returns it.
inline ir::ValueId named(ir::Function& f, ir::ValueId value, std::string name) {
  f[value].name = std::move(name);
  return value;
}

/// Gives an op with one result a new one of the same type and layout; nothing makes the old one
/// until it takes the place of another.
ir::ValueId replace_result(ir::Function& f, ir::OpId op, std::string name);

/// Has the op that makes a value make another one instead.
void take_place(ir::Function& f, ir::ValueId value, ir::ValueId of);

/// A builder in front of an op of a block, or behind it.
ir::Builder before(ir::Function& f, ir::BlockId block, ir::OpId op);
ir::Builder behind(ir::Function& f, ir::BlockId block, ir::OpId op);

/// Calls `rewrite(b, op)` for each op that a block has now; the builder `b` stands in front of the op. What
/// the builder puts, there or behind the op (Builder::go_behind), is not visited.
template <class Rewrite>
void rewrite_ops(ir::Function& f, ir::BlockId block, Rewrite&& rewrite, std::size_t from = 0) {
  for (std::size_t i = from; i < f[block].ops.size();) {
    const ir::OpId id = f[block].ops[i];
    ir::Builder b(f, block, i);
    rewrite(b, id);
    i = b.position();
    if (i < f[block].ops.size() && f[block].ops[i] == id) ++i;
  }
}

/// The same for the ops of a block and of all regions in it, those of an op's regions first.
template <class Rewrite>
void rewrite_inside_out(ir::Function& f, ir::BlockId block, const Rewrite& rewrite) {
  rewrite_ops(f, block, [&](ir::Builder& b, ir::OpId id) {
    for (const ir::BlockId region : Regions(f[id])) rewrite_inside_out(f, region, rewrite);
    rewrite(b, id);
  });
}

/// The same for all blocks, in the order in which they were made.
template <class Rewrite>
void rewrite_all_blocks(ir::Function& f, const Rewrite& rewrite) {
  for (std::size_t b = 0; b < f.blocks.size(); ++b) rewrite_ops(f, ir::BlockId(b), rewrite);
}

/// The last position of the block's tile along an axis that exists.
ir::ValueId last_position(ir::Builder& b, ir::AxisId axis);

/// The condition that both of two hold. It takes no op where one of them is known; one may be none.
ir::ValueId build_both(ir::Builder& b, ir::ValueId x, ir::ValueId y);

/// Builds the ops of a region, and returns what it yields.
using Region = std::function<std::vector<ir::ValueId>(ir::Builder&)>;

/// A region of ops that are in no block.
Region region_of(std::vector<ir::OpId> ops, std::vector<ir::ValueId> yielded = {});

/// Makes a block of such a region.
ir::BlockId build_region(const ir::Builder& b, const Region& region);

/// Puts an `if`. Its results are like these values, or else like what the first region yields.
std::vector<ir::ValueId> build_if(ir::Builder& b, ir::ValueId condition, const Region& holds,
                                  const Region& otherwise = {},
                                  const std::vector<ir::ValueId>& like = {});

/// Removes ops without effect whose results nobody reads, loops' unused carried values excepted.
void remove_dead_ops(ir::Function& f);

/// Adds a carried value to a loop: an initial operand, an argument of the region (returned) and a
/// result. The caller adds the matching operand to the yield.
ir::ValueId add_carried(ir::Function& f, ir::OpId loop, ir::ValueId initial, std::string name);

/// Takes a carried value from a loop, whose argument and result nothing reads any more.
void drop_carried(ir::Function& f, ir::OpId loop, std::size_t i);

/// Puts the conversion of a value to a buffer in shared memory. Returns the tile there.
ir::ValueId convert_to(ir::Builder& b, ir::ValueId value, ir::BufferId buffer, std::string name,
                       ir::Op convert = {.code = ir::OpCode::convert});

/// Does so into a buffer of its own, whose rows lie `pitch` elements apart, or in chunks of 16 bytes
/// for products to read where that is 0. A value without a name gives the buffer the name `otherwise`.
ir::ValueId move_to_shared(ir::Builder& b, ir::ValueId value, const char* otherwise, int pitch);

/// Adds a value of the same type, layout and name.
ir::ValueId add_value_like(ir::Function& f, ir::ValueId value);

/// Adds an op, to no block, with a result like each of these values.
ir::OpId add_op_like(ir::Function& f, ir::Op op, const std::vector<ir::ValueId>& like);

/// Puts such an op; returns its results.
std::vector<ir::ValueId> make_like(ir::Builder& b, ir::Op op, const std::vector<ir::ValueId>& like);

/// A name for a buffer that no other has.
std::string unused_buffer_name(const ir::Function& f, const std::string& wanted);

/// A tile times a scalar.
struct Scaled {
  ir::ValueId tile, factor;
};

/// Of an op that multiplies a tile by a scalar; `op` may be null.
std::optional<Scaled> scaled_tile(const ir::Function& f, const ir::Op* op);

/// The same where the scalar is known to be above zero.
std::optional<Scaled> positively_scaled_tile(const ir::Function& f, const ir::Op* op);

/// Whether a scalar, or a constant, is above zero.
bool is_positive_scalar(const ir::Function& f, ir::ValueId value);

/// Whether a scalar is known to be above zero: a promise of a parameter, or made of such.
bool is_positive(const ir::Function& f, ir::ValueId value);

}  // namespace flashcore
