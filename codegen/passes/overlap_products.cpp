// Products of wgmma run beside the warps that started them. Each is started where it stands and lands
// right behind; in a loop that takes what one product made, computes, and feeds it to another, the body is
// rotated so that one product of the next round and one of the last are in flight while a round computes:
//
//   loop { s = dot q, k ; p = f(s) ; acc = dot p, v, acc * d(s) }           becomes
//
//   once { s = dot q, k ; land ; p, d = f(s) ; acc = acc * d                 the first round's first half
//          loop { start s' = dot q, k          of this round
//                 start acc = dot p, v, acc    of the last one
//                 land s' ; p', d' = f(s') ; land acc ; acc = acc * d' }
//          acc = dot p, v, acc ; land }                                      the last round's second half
//
// The late product's tile is that of the round before, whose number is handed on where its wait asks for it.
//
// A ring's slot may be filled again once the last product that reads it has landed.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

/// A loop's body, cut for rotation.
struct Cut {
  struct Late {
    OpId dot;
    std::size_t carried;  ///< which carried value it makes the next of
    OpId scaling;         ///< what it adds to is this of the carried value; none: the value itself
  };
  std::vector<Late> late;
  std::set<OpId> late_ops;  ///< the products and what only they need: waits, views
  std::set<OpId> first;     ///< the other products, and what they need
};

class Overlap {
 public:
  Overlap(Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  void run() {
    for (OpId id : std::vector(f_[f_.body].ops)) {
      if (f_[id].code != OpCode::consumers) continue;
      block(f_[id].body);
      release_slots(f_[id].body);
    }
    remove_dead_ops(f_);
  }

 private:
  void block(BlockId id) {
    for (OpId op : std::vector(f_[id].ops)) {
      if (f_[op].code != OpCode::loop) continue;
      const std::optional<Cut> cut = schedule_.overlap_products ? find_cut(f_[op]) : std::nullopt;
      if (cut)
        rotate(op, *cut);
      else
        block(f_[op].body);
    }
    std::vector<OpId> ops;
    for (OpId op : std::vector(f_[id].ops)) {
      ops.push_back(op);
      if (f_[op].code == OpCode::dot && !f_[op].started) ops.push_back(start_and_land(op));
    }
    f_[id].ops = std::move(ops);
  }

  // ---- started products

  OpId start_and_land(OpId dot) {
    f_[dot].started = true;
    return land({f_[dot].results[0]}, 0);
  }

  /// Everything that reads the sums reads what landed.
  OpId land(const std::vector<ValueId>& sums, int pending) {
    Op op{.code = OpCode::land_products};
    op.count = pending;
    const OpId id(f_.ops.size());
    for (ValueId sum : sums) {
      const ValueId landed = f_.add_value(f_[sum].type, f_[sum].name);
      f_[landed].home = f_[sum].home;
      f_[landed].definition = id;
      for (Op& reader : f_.ops)
        for_each_use(reader, [&](ValueId& v) {
          if (v == sum) v = landed;
        });
      op.operands.push_back(sum);
      op.results.push_back(landed);
    }
    f_.ops.push_back(std::move(op));
    return id;
  }

  // ---- rotation

  [[nodiscard]] std::vector<OpId> readers(const std::vector<OpId>& ops, ValueId value) const {
    std::vector<OpId> found;
    for (OpId id : ops) {
      bool reads = false;
      for_each_use(f_[id], [&](const ValueId& v) { reads = reads || v == value; });
      if (reads) found.push_back(id);
    }
    return found;
  }

  [[nodiscard]] std::optional<Cut> find_cut(const Op& loop) const {
    const std::vector<OpId>& ops = f_[loop.body].ops;
    const Op& yield = f_[ops.back()];
    Cut cut;
    std::set<ValueId> from_products;
    for (OpId id : ops) {
      const Op& op = f_[id];
      if (op.body) return std::nullopt;
      bool depends = op.code == OpCode::dot;
      for_each_use(op, [&](const ValueId& v) { depends = depends || from_products.count(v) > 0; });
      for (ValueId result : op.results)
        if (depends) from_products.insert(result);
    }
    for (OpId id : ops) {
      const Op& dot = f_[id];
      if (dot.code != OpCode::dot) continue;
      const bool computed = from_products.count(dot.operands[0]) > 0;
      if (computed) {
        const std::optional<Cut::Late> late = as_late(loop, yield, id);
        if (!late) return std::nullopt;
        cut.late.push_back(*late);
      } else if (dot.operands.size() == 3 || from_products.count(dot.operands[1])) {
        return std::nullopt;  // a sum that rounds hand on is not ready before they end
      }
    }
    if (cut.late.empty()) return std::nullopt;
    std::set<ValueId> first_read;
    for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
      const Op& op = f_[*id];
      const bool late = is_late(cut, *id);
      const auto all_late = [&](ValueId v) {
        const std::vector<OpId> at = readers(ops, v);
        return !at.empty() && std::all_of(at.begin(), at.end(), [&](OpId r) { return cut.late_ops.count(r); });
      };
      if (late || ((op.code == OpCode::await_slot || op.code == OpCode::transpose) && all_late(op.results[0]))) {
        cut.late_ops.insert(*id);
        continue;
      }
      const bool needed = op.code == OpCode::dot ||
                          std::any_of(op.results.begin(), op.results.end(),
                                      [&](ValueId v) { return first_read.count(v) > 0; });
      if (!needed) continue;
      cut.first.insert(*id);
      for_each_use(op, [&](const ValueId& v) { first_read.insert(v); });
    }
    if (cut.first.empty()) return std::nullopt;
    for (OpId id : cut.late_ops) {
      const Op& op = f_[id];
      // A slot that both halves read would be held for two rounds.
      if (op.code != OpCode::dot) continue;
      const OpId slot = f_[slot_of(op.operands[1])].definition;
      if (!cut.late_ops.count(slot) && std::find(ops.begin(), ops.end(), slot) != ops.end())
        return std::nullopt;
    }
    return cut;
  }

  [[nodiscard]] ValueId slot_of(ValueId value) const {
    const Op* op = f_.definition(value);
    while (op && op->code == OpCode::transpose) {
      value = op->operands[0];
      op = f_.definition(value);
    }
    return value;
  }

  static bool is_late(const Cut& cut, OpId id) {
    return std::any_of(cut.late.begin(), cut.late.end(), [&](const Cut::Late& l) { return l.dot == id; });
  }

  /// A product whose sum only the next round adds to, scaled or not.
  [[nodiscard]] std::optional<Cut::Late> as_late(const Op& loop, const Op& yield, OpId id) const {
    const std::vector<OpId>& ops = f_[loop.body].ops;
    const Op& dot = f_[id];
    if (dot.operands.size() != 3 || readers(ops, dot.results[0]) != std::vector{ops.back()})
      return std::nullopt;
    const auto at = std::find(yield.operands.begin(), yield.operands.end(), dot.results[0]);
    if (at == yield.operands.end()) return std::nullopt;
    Cut::Late late{id, static_cast<std::size_t>(at - yield.operands.begin()), {}};
    const ValueId argument = f_[loop.body].arguments[late.carried + 1], start = dot.operands[2];
    const std::vector<OpId> reads = readers(ops, argument);
    if (reads.size() != 1) return std::nullopt;
    if (start == argument) return late;
    const Op* scaling = f_.definition(start);
    if (!scaling || reads[0] != f_[start].definition || kind_of(scaling->code) != OpKind::elementwise ||
        readers(ops, start) != std::vector{id})
      return std::nullopt;
    late.scaling = f_[start].definition;
    return late;
  }

  void append(BlockId target, OpId op) { f_[target].ops.push_back(op); }
  OpId append(BlockId target, Op op, const std::vector<TileType>& types = {}) {
    const OpId id = f_.add_op(std::move(op), types);
    append(target, id);
    return id;
  }

  /// What one round leaves for the next: the loop's carried values but the late sums, the number of its tile if
  /// a late wait asks for it, then for every late product its left operand, what it adds to, and, if that is
  /// scaled late, what scales it.
  struct Handed {
    std::vector<ValueId> carried, tile;
    struct Late {
      ValueId left, sum;
      std::vector<ValueId> scalings;  ///< what the scaling reads beside the sum
    };
    std::vector<Late> late;

    [[nodiscard]] std::vector<ValueId> all() const {
      std::vector<ValueId> values = carried;
      values.insert(values.end(), tile.begin(), tile.end());
      for (const Late& l : late) {
        values.push_back(l.left);
        values.push_back(l.sum);
        values.insert(values.end(), l.scalings.begin(), l.scalings.end());
      }
      return values;
    }
  };

  static bool is_scaling(const Cut& cut, OpId id) {
    return std::any_of(cut.late.begin(), cut.late.end(), [&](const Cut::Late& l) { return l.scaling == id; });
  }
  /// Factors that all rows share by lanes, as those of a softmax whose maximum has not grown.
  void mark_lazy(OpId scaling) {
    Op& op = f_[scaling];
    const bool by_vector = op.code == OpCode::mul && (f_[op.operands[0]].type.axes.size() == 1 ||
                                                      f_[op.operands[1]].type.axes.size() == 1);
    op.lazy = schedule_.lazy_scaling && by_vector;
  }

  [[nodiscard]] bool scales_late(const Cut::Late& late) const {
    return schedule_.scale_late && late.scaling;
  }

  void rotate(OpId loop_id, const Cut& cut) {
    const Op loop = f_[loop_id];
    const auto bounds = static_cast<std::size_t>(loop.bounds);
    Op once = loop;
    once.once = true;
    once.body = f_.add_block();
    const ValueId tile = copy_argument(once.body, f_[loop.body].arguments[0]);
    std::vector<ValueId> start;
    for (std::size_t i = 1; i < f_[loop.body].arguments.size(); ++i)
      start.push_back(copy_argument(once.body, f_[loop.body].arguments[i]));

    const Handed first = half_round(loop, cut, once.body, tile, start, nullptr);

    // The other rounds.
    Op inner = loop;
    inner.operands = rest_of_bounds(once.body, loop, tile);
    const std::vector<ValueId> handed = first.all();
    inner.operands.insert(inner.operands.end(), handed.begin(), handed.end());
    inner.bounds = loop.bounds == 0 ? 2 : loop.bounds;
    inner.body = f_.add_block();
    inner.results.clear();
    const ValueId inner_tile = copy_argument(inner.body, f_[loop.body].arguments[0]);
    Handed held = first;
    const auto as_argument = [&](ValueId& v) { v = copy_argument(inner.body, v); };
    for_each_value(held, as_argument);
    Handed next = half_round(loop, cut, inner.body, inner_tile, {}, &held);
    const std::vector<ValueId> yielded = next.all();
    append(inner.body, Op{.code = OpCode::yield, .operands = yielded});
    const OpId inner_id(f_.ops.size());
    Handed last = first;
    for_each_value(last, [&](ValueId& v) {
      const Value like = f_[v];
      v = f_.add_value(like.type, like.name);
      f_[v].home = like.home;
      f_[v].definition = inner_id;
      inner.results.push_back(v);
    });
    f_.ops.push_back(std::move(inner));
    append(once.body, inner_id);

    // The last round's second half.
    std::vector<ValueId> sums;
    Views views;
    for (std::size_t i = 0; i < cut.late.size(); ++i)
      sums.push_back(start_late(loop, cut, i, once.body, last, views));
    const OpId landing = land(sums, 0);
    append(once.body, landing);
    std::vector<ValueId> results(start.size());
    for (std::size_t i = 0, k = 0; i < start.size(); ++i)
      if (late_at(cut, i) == cut.late.size()) results[i] = last.carried[k++];
    for (std::size_t i = 0; i < cut.late.size(); ++i)
      results[cut.late[i].carried] = f_[landing].results[i];
    append(once.body, Op{.code = OpCode::yield, .operands = results});
    once.results = loop.results;
    once.operands = loop.operands;
    (void)bounds;
    f_[loop_id] = std::move(once);
  }

  template <class Visit>
  static void for_each_value(Handed& handed, Visit visit) {
    for (ValueId& v : handed.carried) visit(v);
    for (ValueId& v : handed.tile) visit(v);
    for (Handed::Late& late : handed.late) {
      visit(late.left);
      visit(late.sum);
      for (ValueId& v : late.scalings) visit(v);
    }
  }

  ValueId copy_argument(BlockId block, ValueId like) {
    const Value value = f_[like];
    const ValueId argument = f_.add_argument(block, value.type, value.name);
    f_[argument].home = value.home;
    return argument;
  }

  [[nodiscard]] static std::size_t late_at(const Cut& cut, std::size_t carried) {
    for (std::size_t i = 0; i < cut.late.size(); ++i)
      if (cut.late[i].carried == carried) return i;
    return cut.late.size();
  }

  /// Bounds of the loop without its first tile.
  std::vector<ValueId> rest_of_bounds(BlockId block, const Op& loop, ValueId tile) {
    std::vector<ValueId> bounds(loop.operands.begin(), loop.operands.begin() + loop.bounds);
    insert_before(f_, block, f_[block].ops.size(), loop.where, [&](Builder& b) {
      if (bounds.empty()) {
        bounds = {b.constant(0, DType::i32), b.tile_count(loop.axis)};
        mark(bounds[0]);
        mark(bounds[1]);
      }
      ValueId from = tile;
      if (!loop.descending) {
        from = b.add(tile, b.constant(1, DType::i32));
        mark(from);
      }
      const std::vector<ValueId> old = bounds;
      const std::size_t fixed = loop.descending ? bounds.size() - 1 : 0, other = loop.descending ? 0 : bounds.size() - 1;
      bounds[fixed] = from;
      for (std::size_t i = 1; i + 1 < bounds.size(); ++i) {
        if (old[i] == old[fixed]) {
          bounds[i] = from;
        } else if (old[i] != old[other]) {
          bounds[i] = b.elementwise(loop.descending ? OpCode::min : OpCode::max, {old[i], from});
          mark(bounds[i]);
        }
      }
    });
    return bounds;
  }
  void mark(ValueId value) {
    const Op* op = f_.definition(value);
    if (op && kind_of(op->code) != OpKind::source) f_[value].home.space = Space::uniform;
  }

  /// Copies the first half of a round, for the tile `tile`, to the end of `target`. Without `held` the late sums
  /// are `start`'s; with it, the late products of the round before are in flight meanwhile.
  Handed half_round(const Op& loop, const Cut& cut, BlockId target, ValueId tile,
                    const std::vector<ValueId>& start, const Handed* held) {
    const std::vector<OpId> ops = f_[loop.body].ops;
    const std::vector<ValueId> arguments = f_[loop.body].arguments;
    OpCopier copier(f_);
    copier.rename(arguments[0], tile);
    for (std::size_t i = 0, k = 0; i + 1 < arguments.size(); ++i) {
      if (late_at(cut, i) < cut.late.size()) {
        if (!held) copier.rename(arguments[i + 1], start[i]);
      } else {
        copier.rename(arguments[i + 1], held ? held->carried[k] : start[i]);
        ++k;
      }
    }
    // What is packed for the late products waits for them to land: its registers are theirs until then.
    std::set<OpId> tail;
    for (const Cut::Late& late : cut.late) {
      tail.insert(f_[f_[late.dot].operands[0]].definition);
      if (late.scaling) tail.insert(late.scaling);
    }
    // Where all warpgroups meet, none has the turn.
    Views views;
    std::set<OpId> early;
    for (OpId id : ops) {
      if (!held || !schedule_.alternate || !clears(id)) continue;
      if (cut.late_ops.count(id)) {
        look(loop, id, target, *held, views);
      } else {
        append(target, copier.copy(id));
        early.insert(id);
      }
    }
    std::vector<ValueId> started;
    bool turns = false;
    for (OpId id : ops) {
      if (!cut.first.count(id) || early.count(id)) continue;
      const OpId copied = copier.copy(id);
      if (f_[copied].code == OpCode::dot) {
        if (held && schedule_.alternate && !turns) append(target, Op{.code = OpCode::await_turn});
        turns = true;
        f_[copied].started = true;
        started.push_back(f_[copied].results[0]);
      }
      append(target, copied);
    }
    std::vector<ValueId> sums;
    for (std::size_t i = 0; held && i < cut.late.size(); ++i)
      sums.push_back(start_late(loop, cut, i, target, *held, views));
    if (held && schedule_.alternate) append(target, Op{.code = OpCode::pass_turn});
    const OpId landing = land(started, static_cast<int>(sums.size()));
    append(target, landing);
    for (OpId id : ops)  // the copies below read what has landed
      if (cut.first.count(id) && f_[id].code == OpCode::dot)
        for (std::size_t i = 0; i < started.size(); ++i)
          if (copier.renamed(f_[id].results[0]) == started[i])
            copier.rename(f_[id].results[0], f_[landing].results[i]);
    const auto copy_rest = [&](bool tails) {
      for (OpId id : ops) {
        if (cut.first.count(id) || cut.late_ops.count(id) || tail.count(id) != (tails ? 1U : 0U) ||
            f_[id].code == OpCode::yield)
          continue;
        const bool late_scaling = std::any_of(cut.late.begin(), cut.late.end(), [&](const Cut::Late& l) {
          return l.scaling == id && scales_late(l);
        });
        if (late_scaling) continue;
        const OpId copied = copier.copy(id);
        if (held && is_scaling(cut, id)) mark_lazy(copied);
        append(target, copied);
      }
    };
    const std::size_t computed = f_[target].ops.size();
    copy_rest(false);
    if (held) {
      const OpId late_landing = land(sums, 0);
      if (schedule_.wait_late) settle_before(late_landing, target, computed);
      append(target, late_landing);
      for (std::size_t i = 0; i < cut.late.size(); ++i)
        copier.rename(arguments[cut.late[i].carried + 1], f_[late_landing].results[i]);
    }
    copy_rest(true);

    Handed handed;
    if (std::any_of(cut.late_ops.begin(), cut.late_ops.end(), [&](OpId id) { return clears(id); }))
      handed.tile = {tile};
    const Op& yield = f_[ops.back()];
    for (std::size_t i = 0; i < yield.operands.size(); ++i)
      if (late_at(cut, i) == cut.late.size()) handed.carried.push_back(copier.renamed(yield.operands[i]));
    for (const Cut::Late& late : cut.late) {
      Handed::Late l;
      l.left = copier.renamed(f_[late.dot].operands[0]);
      const ValueId argument = arguments[late.carried + 1];
      if (scales_late(late)) {
        l.sum = copier.renamed(argument);
        for (ValueId operand : f_[late.scaling].operands)
          if (operand != argument) l.scalings.push_back(copier.renamed(operand));
      } else {
        l.sum = copier.renamed(f_[late.dot].operands[2]);
      }
      handed.late.push_back(l);
    }
    return handed;
  }

  /// What the round has computed for the next is there before anything waits for the late products: else they
  /// would not run beside it.
  void settle_before(OpId landing, BlockId block, std::size_t begin) {
    std::set<ValueId> read;
    for (std::size_t i = f_[block].ops.size(); i-- > begin;) {
      const Op& op = f_[f_[block].ops[i]];
      const bool last = op.results.size() == 1 && f_[op.results[0]].type.dtype == DType::f32 &&
                        f_[op.results[0]].home.space == Space::registers &&
                        f_[op.results[0]].type.axes.size() == 1 && !read.count(op.results[0]);
      if (last) f_[landing].operands.push_back(op.results[0]);
      for_each_use(op, [&](const ValueId& v) { read.insert(v); });
    }
  }

  /// What the waits and views of the late products are called in a copy.
  using Views = std::map<ValueId, ValueId>;

  /// A wait that clears rows beyond its axis: all warpgroups meet in it.
  [[nodiscard]] bool clears(OpId id) const {
    return f_[id].code == OpCode::await_slot && !f_[id].operands.empty();
  }

  /// Copies a wait or a view for late products, once for all of them.
  void look(const Op& loop, OpId id, BlockId target, const Handed& from, Views& views) {
    if (views.count(f_[id].results[0])) return;
    OpCopier copier(f_);
    for (const auto& [old, now] : views) copier.rename(old, now);
    if (!from.tile.empty()) copier.rename(f_[loop.body].arguments[0], from.tile[0]);
    const OpId copied = copier.copy(id);
    append(target, copied);
    views[f_[id].results[0]] = f_[copied].results[0];
  }

  /// Starts a late product on what the round before has left; returns its sum.
  ValueId start_late(const Op& loop, const Cut& cut, std::size_t which, BlockId target,
                     const Handed& from, Views& views) {
    const Cut::Late& late = cut.late[which];
    const Handed::Late& held = from.late[which];
    const ValueId argument = f_[loop.body].arguments[late.carried + 1];
    OpCopier copier(f_);
    copier.rename(f_[late.dot].operands[0], held.left);
    if (scales_late(late)) {
      copier.rename(argument, held.sum);
      std::size_t k = 0;
      for (ValueId operand : std::vector(f_[late.scaling].operands))
        if (operand != argument) copier.rename(operand, held.scalings[k++]);
      const OpId copied = copier.copy(late.scaling);
      mark_lazy(copied);
      append(target, copied);
    } else {
      copier.rename(f_[late.dot].operands[2], held.sum);
    }
    // The waits and views of this product, before the first late product that needs them.
    std::set<ValueId> needed{f_[late.dot].operands[1]};
    std::vector<OpId> chain;
    const std::vector<OpId> ops = f_[loop.body].ops;
    for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
      const Op& op = f_[*id];
      if (!cut.late_ops.count(*id) || op.code == OpCode::dot || !needed.count(op.results[0])) continue;
      chain.insert(chain.begin(), *id);
      for_each_use(op, [&](const ValueId& v) { needed.insert(v); });
    }
    for (OpId id : chain) {
      look(loop, id, target, from, views);
      copier.rename(f_[id].results[0], views[f_[id].results[0]]);
    }
    const OpId dot = copier.copy(late.dot);
    f_[dot].started = true;
    append(target, dot);
    return f_[dot].results[0];
  }

  // ---- rings

  /// Behind the landing of the last product of a block that reads a slot; behind the loop, if that is inside
  /// one.
  void release_slots(BlockId block) {
    for (std::size_t i = 0; i < f_[block].ops.size(); ++i) {
      const Op op = f_[f_[block].ops[i]];
      if (op.body) release_slots(op.body);
      if (op.code != OpCode::await_slot) continue;
      std::size_t last = i;
      std::set<ValueId> reads{op.results[0]};
      for (std::size_t k = i + 1; k < f_[block].ops.size(); ++k) {
        const Op& user = f_[f_[block].ops[k]];
        bool uses = false;
        const auto look = [&](const Op& at, BlockId = {}) {
          for_each_use(at, [&](const ValueId& v) { uses = uses || reads.count(v) > 0; });
        };
        look(user);
        if (user.body) for_each_op(f_, user.body, look);
        if (!uses) continue;
        last = k;
        // A view, or a product in flight, reads on under another name.
        if (user.code == OpCode::transpose || user.started) reads.insert(user.results[0]);
        if (user.code == OpCode::land_products)
          for (ValueId landed : user.operands) reads.erase(landed);
      }
      Op release{.code = OpCode::release_slot};
      release.buffer = op.buffer;
      const OpId id = f_.add_op(std::move(release), {});
      auto& ops = f_[block].ops;
      ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(last) + 1, id);
    }
  }

  Function& f_;
  const Schedule& schedule_;
};

}  // namespace

void overlap_products(Function& f, const PassContext& context) {
  if (context.schedule.instruction == Instruction::wgmma) Overlap(f, context.schedule).run();
}

}  // namespace flashcore
