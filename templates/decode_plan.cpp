#include "templates/decode_plan.h"

#include <vector>

#include <fmt/format.h>

#include "templates/attention_tensors.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

constexpr int lengths_tried = 32;
/// There are no more splits than so many waves of blocks beside one split of each sequence. More of them end
/// sooner after each other, but blocks without keys take time, too.
constexpr int most_waves = 3;

Tile as_f32(const Tile& whole) { return cast(whole, DType::f32); }

/// What the program knows of the sequences.
class Lengths {
 public:
  Lengths(ProgramBuilder& b, const DecodeSpec& spec, const Extent& batch) : spec_(spec) {
    const AttentionSpec& a = spec.attention;
    const auto declare = [&](const char* name, const Extent& length) {
      return b.input(name, DType::i32, {length});
    };
    if (a.packed()) row_starts_ = declare("cu_seqlens_q", batch + 1);
    if (a.kv_lens)
      kv_lens_ = declare("kv_lens", batch);
    else
      key_starts_ = declare("cu_seqlens_k", batch + 1);
    if (a.q_lens) q_lens_ = declare("q_lens", batch);
    most_rows_ = b.scalar(a.packed() ? "max_q_len" : "most_rows", DType::i32);
    most_keys_ = b.scalar("most_keys", DType::i32);
  }

  /// How many times keys_of_splits keys some row of them sees, rounded up.
  [[nodiscard]] Tile shares(const Tile& sequence) const {
    const Tile keys = length_of(kv_lens_, key_starts_, sequence, most_keys_);
    const Tile rows = length_of(q_lens_, row_starts_, sequence, most_rows_);
    return quotient_up(seen_keys(spec_, rows, keys).count, keys_of_splits);
  }

  /// How many splits of so many shares each has: one at the least.
  [[nodiscard]] Tile splits(const Tile& sequence, const Tile& shares_of_split) const {
    return maximum(quotient_up(shares(sequence), shares_of_split), 1);
  }

 private:
  /// By the tensor that says it, or the one that says where sequences begin; without either all have
  /// the most.
  static Tile length_of(const Tensor& lengths, const Tensor& starts, const Tile& at,
                        const Tile& most) {
    if (!lengths.owner() && !starts.owner()) return most;
    const Tile own = lengths.owner() ? load(lengths(at)) : load(starts(at + 1)) - load(starts(at));
    return minimum(maximum(own, 0), most);
  }

  const DecodeSpec& spec_;
  Tensor row_starts_, key_starts_, kv_lens_, q_lens_;  ///< those that the spec has
  Tile most_rows_, most_keys_;
};

/// For each length of splits that is tried: what follows from the lengths of the sequences.
struct Candidates {
  Tile splits;           ///< of all sequences
  Tile shares, longest;  ///< of all sequences, and of the longest; the same for each length
};

/// Microseconds beside what any length takes. All blocks together read at the speed of the memory, and one
/// split is read at the speed of a block. Where blocks take turns the last ones read alone at the end, half a
/// split in the mean; where all run at once they end together, nearly. Each turn begins and ends.
Tile cost_of(const Candidates& tried, const Tile& length, const SplitCosts& costs,
             const Tile& head_blocks, const Tile& row_tiles, const Tile& block_slots) {
  constexpr double us = 1e-6, keys = keys_of_splits;
  const Tile longest = maximum(minimum(length, tried.longest), 1.f);
  const Tile alone = longest * (keys * static_cast<double>(costs.lone_key) * us);
  const Tile together =
      tried.shares * head_blocks / row_tiles * (keys * static_cast<double>(costs.read) * us);
  const Tile blocks = tried.splits * head_blocks;
  const Tile turns = floor((blocks + (block_slots - 1)) / block_slots);
  const Tile tail = where(turns > 1.f, alone * 0.5f, alone * 0.25f);
  return maximum(together + tail, alone) + turns * (static_cast<double>(costs.balanced_turn) * us) +
         tried.longest / longest * (static_cast<double>(costs.split) * us);
}

}  // namespace

Program attention_decode_plan(const DecodeSpec& spec, const SplitCosts& costs) {
  ProgramBuilder b("attention_decode_plan");
  const Extent batch = spec.attention.batch ? Extent(*spec.attention.batch) : Extent("B");
  const Axis number = b.parallel_tiles("number", batch + 1),
             sequences = b.tiles("sequences", batch);
  const Axis tried = b.whole("tried", lengths_tried);
  const Lengths of(b, spec, batch);
  const auto scalar = [&](const char* name) { return as_f32(b.scalar(name, DType::i32)); };
  const Tile head_blocks = scalar("head_blocks"), row_tiles = scalar("row_tiles");
  const Tile block_slots = scalar("block_slots"), most_splits = scalar("splits");
  const Tensor first_split = b.output("first_split", DType::i32, {batch + 1});
  const Tensor split_keys = b.output("split_keys", DType::i32, {batch + 1});

  // Two to an octave, from one share on.
  const Tile lengths = round(exp2(as_f32(index(tried)) * 0.5f)).named("lengths");
  const Tile of_length = 1.f / lengths, zeros = b.fill({tried}, 0);
  const Candidates found =
      b.loop(sequences, Candidates{zeros, zeros, zeros}, [&](const Candidates& c) {
        // Each element of a vector over the lengths is summed up by itself, without its neighbours.
        const Tile shares = zeros + as_f32(of.shares(index(sequences)));
        // Halfway between whole numbers, so that rounding does not count: the quotient rounded up.
        const Tile splits = maximum(floor((shares - 0.5f) * of_length) + 1.f, 1.f);
        return Candidates{c.splits + reduce_sum(splits, sequences),
                          c.shares + reduce_sum(shares, sequences),
                          maximum(c.longest, reduce_max(shares, sequences))};
      });
  const Tile predicted = cost_of(found, lengths, costs, head_blocks, row_tiles, block_slots);
  const Tile cost = where(found.splits <= most_splits, predicted, infinity).named("cost");
  const Tile least = reduce_min(cost, tried);
  const Tile is_best = cost <= least && cost < infinity;
  const Tile best = reduce_min(where(is_best, lengths, infinity), tried);
  // Where there is no room for splits of any length that is tried, each sequence has one.
  const Tile longest = reduce_max(found.longest, tried);
  const Tile length_of_split =
      cast(maximum(minimum(best, longest), 1.f), DType::i32).named("length_of_split");

  const Tile in_front = b.loop(sequences, b.fill({number}, 0), [&](const Tile& sum) {
    const Tile own = as_f32(of.splits(index(sequences), length_of_split));
    return sum + reduce_sum(where(index(sequences) < index(number), own, 0.f), sequences);
  });
  store(first_split(number), cast(in_front, DType::i32));
  // Those of a sequence are as long as each other.
  const Tile own = quotient_up(of.shares(index(number)), of.splits(index(number), length_of_split));
  store(split_keys(number), maximum(own, 1) * keys_of_splits);
  return b.finish();
}

SplitPlan::SplitPlan(const AttentionTensors& tensors)
    : t_(tensors), first_split_(declare("first_split")) {}

/// Something of each sequence.
Tensor SplitPlan::declare(const char* name) const {
  return t_.builder->input(name, DType::i32, {t_.batch_size + 1});
}

SplitOwner SplitPlan::find_owner(Axis split) const {
  const Tile found = searchsorted(first_split_, index(split));
  const Tile exists = found < length(first_split_, 0);
  return {where(exists, found - 1, 0).named("sequence"), exists};
}

SplitShare SplitPlan::load_share(Axis split) const {
  const Tile own = t_.sequence(), begin = load(first_split_(own));
  const Tile share = load(declare("split_keys")(own)).named("share");
  return {(index(split) - begin) * share, share};
}

void SplitPlan::place_splits(Axis splits) const {
  const Tile own = t_.sequence(), begin = load(first_split_(own));
  t_.builder->segment(splits, begin, load(first_split_(own + 1)));
}

void add_plan_numbers(ModuleBuilder& m, const DecodeSpec& spec, int row_tile,
                      const SplitCosts& costs) {
  const AttentionSpec& a = spec.attention;
  const auto size = [](std::optional<int> fixed, const char* name) {
    return fixed ? std::to_string(*fixed) : std::string(name);
  };
  const std::string batch = size(a.batch, "B");
  const std::string rows = a.packed() ? "max_q_len" : size(a.q_len, "Sq");
  const std::string heads = a.kv_heads ? std::to_string(a.kv_heads)
                            : a.heads  ? std::to_string(a.heads)
                                       : "H";
  const std::string keys = a.paged()    ? fmt::format("max_pages * {}", a.page_size)
                           : a.packed() ? "Tk"
                                        : size(a.kv_len, "Sk");
  m.number("most_rows", rows);
  m.number("most_keys", keys);
  m.number("row_tiles",
           fmt::format("max(1, ({} * {} + {}) // {})", rows, a.group(), row_tile - 1, row_tile));
  m.number("head_blocks", fmt::format("max(1, {} * row_tiles)", heads));
  m.number("block_slots", fmt::format("{} * multiprocessors", costs.residents));
  // No more than sequences have keys for.
  m.number(
      "splits",
      fmt::format(
          "{0} + max(1, min({1} * block_slots // head_blocks, {0} * ((most_keys + {2}) // {3})))",
          batch, most_waves, keys_of_splits - 1, keys_of_splits));
}

std::vector<Schedule> attention_decode_plan_schedules(const Target& target) {
  Schedule s;
  choose_family(s, target);
  s.tiles = {{"number", 16}, {"sequences", 128}};
  s.warps_m = 1;
  s.warps_n = 4;
  s.descending = false;
  return {s};
}

}  // namespace flashcore
