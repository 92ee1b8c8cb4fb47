// Gives every register tile an array, and one array to tiles that become each other: what a loop
// starts from, carries, yields and leaves; what an if gives and its regions yield; a product and
// the sum that it adds to. Then a steady loop copies nothing. Tiles that are needed at the same
// time (codegen/analysis/register_interference.h) stay apart, and the printer copies one to the
// other.
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "codegen/analysis/register_interference.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class ArrayAssignment {
 public:
  explicit ArrayAssignment(Function& f)
      : f_(f), apart_(find_interference(f)), group_(f.values.size()) {
    std::iota(group_.begin(), group_.end(), 0U);
  }

  void run() {
    // Behind a loop its last values lie where it has carried them, and a product where it was
    // summed up while it was in flight.
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (op.code == OpCode::loop)
        for (const Carried& carried : carried_by(f_, op)) unite(carried.result, carried.argument);
      if (op.code == OpCode::wait_products)
        for (std::size_t i = 0; i < op.results.size(); ++i) unite(op.results[i], op.operands[i]);
    });
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) { join(op); });
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (op.code == OpCode::nest) join_operands(op);
    });
    number();
  }

 private:
  void join(const Op& op) {
    switch (op.code) {
      case OpCode::dot:
        if (op.operands.size() == 3) try_to_unite(op.results[0], op.operands[2]);
        break;
      case OpCode::combine_partials:
        try_to_unite(op.results[0], op.operands[0]);
        break;
      case OpCode::if_:
        for (std::size_t i = 0; i < op.results.size(); ++i)
          for (const BlockId region : {op.otherwise, op.body})
            try_to_unite(op.results[i], last_of(f_, region).operands[i]);
        replace_tested_tile(op);
        break;
      case OpCode::loop:
        for (const Carried& carried : carried_by(f_, op))
          for (ValueId value : {carried.start, carried.next}) try_to_unite(carried.argument, value);
        break;
      default:
        break;
    }
  }

  /// Where the range of a tile decides how its elements are computed, the results of the branches take
  /// the place of the elements. If the results have an array of their own, ptxas spreads those of the
  /// exponentials over free registers, and orders the loop worse: a softcap at head_dim 128 takes
  /// 1.5 % longer.
  void replace_tested_tile(const Op& branches) {
    const Op* test = definition_as(f_, branches.operands[0], OpCode::all_within);
    if (!test) return;
    for (const ValueId result : branches.results) try_to_unite(result, test->operands[0]);
  }

  /// An element may take the place of one that nothing reads any more.
  void join_operands(const Op& nest) {
    const auto& yielded = last_of(f_, nest.body).operands;
    for (std::size_t i = 0; i < yielded.size(); ++i)
      if (const Op* made_by = f_.definition(yielded[i]);
          kind_of(made_by->code) == OpKind::elementwise)
        for (ValueId operand : made_by->operands) try_to_unite(nest.results[i], operand);
  }

  std::size_t find(std::size_t value) {
    while (group_[value] != value) value = group_[value] = group_[group_[value]];
    return value;
  }

  void unite(ValueId a, ValueId b) {
    if (!is_held(f_, a) || !is_held(f_, b)) return;
    const std::size_t to = find(a.index), from = find(b.index);
    if (to == from) return;
    // Whatever a member of the other group stays apart from, all of this one do.
    apart_[to].insert(apart_[from].begin(), apart_[from].end());
    group_[from] = to;
  }

  void try_to_unite(ValueId a, ValueId b) {
    const auto is_float = [&](ValueId v) {
      return f_[v].type.dtype != DType::i32 && f_[v].type.dtype != DType::i1;
    };
    const bool alike = f_[a].type == f_[b].type ||
                       (is_float(a) && is_float(b) && f_[a].type.axes == f_[b].type.axes);
    if (!is_held(f_, a) || !is_held(f_, b) || !alike || f_[a].layout != f_[b].layout) return;
    if (is_condition_tile(f_, a) || is_condition_tile(f_, b)) return;  // bits, not elements
    const std::size_t x = find(a.index), y = find(b.index);
    const auto meets = [&](std::size_t group, std::size_t other) {
      return std::ranges::any_of(apart_[group],
                                 [&](ValueId value) { return find(value.index) == other; });
    };
    if (!meets(x, y) && !meets(y, x)) unite(a, b);
  }

  /// In the order in which arrays are first written to.
  void number() {
    std::vector<int> numbers(f_.values.size());
    int count = 0;
    const auto note = [&](ValueId value) {
      if (!is_held(f_, value)) return;
      int& number = numbers[find(value.index)];
      if (!number) number = ++count;
      f_[value].array = number;
    };
    std::set<BlockId> nests;
    for_each_op(f_, f_.body, [&](const Op& op, BlockId block) {
      if (nests.contains(block)) return;
      for (ValueId result : op.results) note(result);
      for (const BlockId region : Regions(op))
        for (ValueId argument : f_[region].arguments) note(argument);
      if (op.code != OpCode::nest) return;
      // What it yields is made in the array of its result, one element after the other.
      nests.insert(op.body);
      const auto& yielded = last_of(f_, op.body).operands;
      for (std::size_t i = 0; i < yielded.size(); ++i)
        f_[yielded[i]].array = f_[op.results[i]].array;
    });
  }

  Function& f_;
  std::vector<std::set<ValueId>> apart_;
  std::vector<std::size_t> group_;
};

}  // namespace

void assign_registers(Function& f, const PassContext&) { ArrayAssignment(f).run(); }

}  // namespace flashcore
