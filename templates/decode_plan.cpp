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
    if (spec.skips_long) most_split_rows_ = b.scalar("most_rows", DType::i32);
    most_keys_ = b.scalar("most_keys", DType::i32);
  }

  [[nodiscard]] Tile rows(const Tile& sequence) const {
    return length_of(q_lens_, row_starts_, sequence, most_rows_);
  }

  [[nodiscard]] Tile first_row(const Tile& sequence) const { return load(row_starts_(sequence)); }
  /// Whether it has too many rows to have splits.
  [[nodiscard]] Tile is_long(const Tile& sequence) const {
    return rows(sequence) > most_split_rows_;
  }

  /// So much of a sequence that has splits, and nothing of others.
  [[nodiscard]] Tile if_split(const Tile& sequence, const Tile& so_much) const {
    if (!spec_.skips_long) return so_much;
    return where(is_long(sequence), 0, so_much);
  }

  /// How many times keys_of_splits keys some row of them sees, rounded up.
  [[nodiscard]] Tile shares(const Tile& sequence) const {
    const Tile keys = length_of(kv_lens_, key_starts_, sequence, most_keys_);
    const Tile all = quotient_up(seen_keys(spec_, rows(sequence), keys).count, keys_of_splits);
    return if_split(sequence, all);
  }

  /// How many splits of so many shares each has: one at the least, if any.
  [[nodiscard]] Tile splits(const Tile& sequence, const Tile& shares_of_split) const {
    return if_split(sequence, maximum(quotient_up(shares(sequence), shares_of_split), 1));
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
  Tile most_split_rows_;  ///< no value where sequences of any length have splits
};

/// For each length of splits that is tried: what follows from the lengths of the sequences.
struct Candidates {
  Tile splits;           ///< of all sequences
  Tile shares, longest;  ///< of all sequences, and of the longest; the same for each length
};

/// What the sequences in front of one have together.
struct InFront {
  Tile splits;
  std::vector<Tile> long_ones;  ///< how many of them are long
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
        const Tile least = as_f32(of.if_split(index(sequences), b.constant(1, DType::i32)));
        const Tile splits = maximum(floor((shares - 0.5f) * of_length) + 1.f, least);
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

  const auto in_front = [&](const Tile& own) {
    return reduce_sum(where(index(sequences) < index(number), as_f32(own), 0.f), sequences);
  };
  InFront nothing{b.fill({number}, 0), {}};
  if (spec.skips_long) nothing.long_ones.push_back(b.fill({number}, 0));
  const InFront sums = b.loop(sequences, nothing, [&](const InFront& sum) {
    const Tile at = index(sequences);
    InFront next{sum.splits + in_front(of.splits(at, length_of_split)), {}};
    for (const Tile& long_ones : sum.long_ones)
      next.long_ones.push_back(long_ones +
                               in_front(where(of.is_long(at), 1, b.constant(0, DType::i32))));
    return next;
  });
  store(first_split(number), cast(sums.splits, DType::i32));
  const auto declare = [&](const char* name) { return b.output(name, DType::i32, {batch + 1}); };
  for (const Tile& long_ones : sums.long_ones) {
    const Tile in_front = cast(long_ones, DType::i32), at = index(number);
    store(declare("long_in_front")(number), in_front);
    // Behind the last long sequence stands where all sequences end.
    const Tile place = where(of.is_long(at) || at == length(sequences), in_front, -1);
    store(declare("long_sequences")(place), at);
    store(declare("long_starts")(place), of.first_row(at));
  }
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

Tile SplitPlan::count_splits() const {
  const Tile own = t_.sequence();
  return load(first_split_(own + 1)) - load(first_split_(own));
}

void place_in_long_sequences(AttentionTensors& t) {
  const auto list = [&](const char* name) {
    return t.builder->input(name, DType::i32, {t.batch_size + 1});
  };
  const Axis own = t.builder->parallel("long_sequence", t.batch_size);
  const Tensor in_front = list("long_in_front");
  t.builder->segment(own, 0, load(in_front(length(in_front, 0) - 1)));
  const Tensor starts = list("long_starts");
  t.own_sequence = load(list("long_sequences")(index(own))).named("sequence");
  t.own_begin = load(starts(index(own)));
  t.next_begin = load(starts(index(own) + 1));
}

void add_plan_numbers(ModuleBuilder& m, const DecodeSpec& spec, int row_tile,
                      const SplitCosts& costs) {
  const AttentionSpec& a = spec.attention;
  const auto size = [](std::optional<int> fixed, const char* name) {
    return fixed ? std::to_string(*fixed) : std::string(name);
  };
  const std::string batch = size(a.batch, "B");
  const std::string rows = spec.skips_long ? std::to_string(row_tile / a.group())
                           : a.packed()    ? "max_q_len"
                                           : size(a.q_len, "Sq");
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
