// For so many waves of blocks, the most splits that fit are the best; the numbers of waves that are
// tried differ by what a partial last wave costs.
#include "templates/choice/decode_splits.h"

#include <algorithm>

#include "dsl/expression_text.h"
#include "templates/key_range.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

constexpr int waves_tried[] = {1, 2, 3};

constexpr double picoseconds = 1e6;  // of a microsecond
constexpr int unit_share = 10000;    // a share of 1, in SplitCosts

std::int64_t whole(double us) { return static_cast<std::int64_t>(us * picoseconds + 0.5); }

/// How many blocks a multiprocessor holds at once. A block of 128 rows takes all registers; two smaller
/// blocks fit if shared memory has room for the queries of both, and two slots of keys and values each.
int residents(const AttentionSpec& spec, const DecodeBlocks& blocks) {
  constexpr int all_shared = 227 * 1024, slot_keys = 2 * 64;
  if (blocks.row_tile > 64) return 1;
  const int d = round_up(spec.head_dim), dv = round_up(spec.value_dim());
  const auto shared =
      static_cast<int>(size_of(spec.dtype)) * (blocks.row_tile * d + slot_keys * (d + dv));
  return 2 * shared <= all_shared ? 2 : 1;
}

/// What the splits of a call share, and what so many of them cost.
template <WholeNumber Number>
class Splitting {
 public:
  Splitting(const DecodeSizes<Number>& problem, const SplitCosts& costs)
      : costs_(costs),
        keys_(problem.keys),
        shares_(maximum(quotient_up(keys_, keys_of_splits), 1)),
        blocks_(maximum(problem.batch * problem.heads * problem.row_tiles, 1)),
        readers_(maximum(problem.row_tiles * Constant(costs.readers), 1)),
        processors_(maximum(problem.multiprocessors, 1)),
        other_processors_(processors_ - 1),
        combined_(blocks_ * Constant(costs.partial) + Constant(costs.split)),
        read_(blocks_ * Constant(costs.read)) {}

  /// Beside what any number of splits costs: the multiprocessor that ends last or the bytes from memory,
  /// which hold each other up where both take long, and combining.
  [[nodiscard]] Number cost(const Number& splits) const { return cost(splits, blocks_ * splits); }

  /// The same if the rows of only so many blocks see a key of their split.
  [[nodiscard]] Number cost(const Number& splits, const Number& working_blocks) const {
    const Number turns = (working_blocks + other_processors_) / processors_;
    const Number keys = keys_of_split(splits);
    const Number alone = turns % Constant(costs_.residents);
    const Number computed =
        keys * ((turns - alone) * Constant(costs_.key) + alone * Constant(costs_.lone_key)) +
        turns * Constant(costs_.block);
    const Number read = read_ * minimum(keys * splits, keys_) / readers_;
    const Number more = maximum(computed, read), less = minimum(computed, read);
    return more + less / 100 * (less * Constant(costs_.stall) / more) / (unit_share / 100) +
           splits * combined_;
  }

  /// With so many splits, the blocks whose rows see a key of their split. A row sees half of its last split in
  /// the mean.
  [[nodiscard]] Number working_blocks(const Number& splits, const Number& hidden) const {
    const Number keys = keys_of_split(splits);
    return blocks_ * splits - blocks_ * maximum(hidden * 2 - keys, 0) / (keys * 2);
  }

  [[nodiscard]] CostedSplits<Number> best() const {
    const Number limit = minimum(shares_, Constant(costs_.most_splits));
    Number last = minimum(limit, 1);
    CostedSplits<Number> best{last, cost(last)};
    for (const int waves : waves_tried) {
      const Number most = maximum(minimum(processors_ * waves / blocks_, limit), 1);
      if constexpr (!std::same_as<Number, Tile>)
        if (most == last) continue;  // where keys are few, or blocks many
      last = most;
      const Number own = cost(most);
      best.splits = where(own < best.cost, most, best.splits);
      best.cost = minimum(own, best.cost);
    }
    return best;
  }

 private:
  using Constant = ConstantFor<Number>;

  [[nodiscard]] Number keys_of_split(const Number& splits) const {
    return quotient_up(shares_, splits) * keys_of_splits;
  }

  const SplitCosts& costs_;
  // What does not depend on the number of splits is computed once: a launch's number has few steps.
  Number keys_, shares_, blocks_, readers_, processors_, other_processors_;
  Number combined_;  ///< what combining a split takes
  Number read_;      ///< what reading a key takes in all blocks
};

/// Launches, and combining each row.
std::int64_t cost_of_any(const DecodeProblem& problem, const SplitCosts& costs) {
  return costs.launch +
         problem.rows * costs.row / std::max<std::int64_t>(1, problem.multiprocessors);
}

}  // namespace

DecodeProblem decode_problem(const AttentionSpec& spec, const DecodeBlocks& blocks,
                             const AttentionProblem& problem, const KeyRange& range,
                             std::int64_t multiprocessors) {
  const int packed_heads = blocks.rows == DecodeRows::of_head ? 1 : spec.group();
  const std::int64_t keys = range.count(problem.q_len, problem.kv_len);
  return {.batch = problem.batch,
          .heads = problem.heads / packed_heads,
          .row_tiles = quotient_up(problem.q_len * packed_heads, blocks.row_tile),
          .keys = keys,
          .hidden = keys - range.typical_count(problem.q_len, problem.kv_len),
          .rows = problem.batch * problem.heads * problem.q_len,
          .multiprocessors = std::max<std::int64_t>(1, multiprocessors)};
}

bool balances_splits(const AttentionSpec& spec, const AttentionProblem& problem,
                     const CostModel& model) {
  const std::int64_t longest = problem.longest_q_len * spec.group();
  const bool differ = spec.packed() ? 0 < longest && longest <= most_decode_rows : spec.kv_lens;
  return differ && static_cast<double>(problem.batch) >= model.properties.least_balanced_batch;
}

std::string decode_family(const DecodeBlocks& blocks) {
  const int tile = blocks.row_tile;
  if (blocks.rows == DecodeRows::packed_in_registers) return "packed_in_registers/128";
  if (blocks.rows == DecodeRows::of_head) return tile <= 64 ? "of_head/64" : "of_head/128";
  return tile <= 16 ? "packed/16" : tile <= 32 ? "packed/32" : "packed/64";
}

SplitCosts split_costs(const AttentionSpec& spec, const DecodeBlocks& blocks,
                       const CostModel& model) {
  const DecodeCosts& costs = model.decoding.at(decode_family(blocks));
  // The copy engine brings tiles from pages as fast as others.
  const bool copies_rows = blocks.rows == DecodeRows::packed || !keys_lie_in_boxes(spec);
  const double paged_share = spec.paged() && copies_rows ? model.properties.paged_share : 0;
  const int both = round_up(spec.head_dim) + round_up(spec.value_dim());
  const double dims = both / 256.;
  // No key takes nothing: what it takes divides.
  const double key = std::max(1 / picoseconds, at_dim(costs.columns_us, both / 2.) / 128);
  const int at_once = residents(spec, blocks);
  return {.launch = whole(costs.launch_us),
          .residents = at_once,
          .key = whole(key * (1 + (at_once == 1 ? paged_share : 0))),
          .lone_key = whole(key * (1 + costs.lone_share + paged_share)),
          .read = whole(costs.read_factor * static_cast<double>(size_of(spec.dtype)) * both /
                        model.costs.bytes_per_us),
          .stall = static_cast<std::int64_t>(costs.stall_share * unit_share + 0.5),
          .readers = blocks.rows == DecodeRows::of_head ? spec.group() : 1,
          .block = whole(costs.block_us),
          .split = whole(costs.split_us),
          .partial = whole(costs.partial_us * blocks.row_tile / 128 * dims),
          .row = whole(blocks.combines_tiles ? costs.tiled_row_us : costs.row_us),
          .balanced_turn = whole(model.properties.balanced_turn_us),
          .most_splits = blocks.combines_tiles ? most_combined_splits(spec, blocks.rows) : 1 << 20};
}

std::int64_t cost_of_splits(const DecodeProblem& problem, const SplitCosts& costs,
                            std::int64_t splits) {
  const Splitting splitting(problem, costs);
  return splitting.cost(splits, splitting.working_blocks(splits, problem.hidden)) +
         cost_of_any(problem, costs);
}

CostedSplits<std::int64_t> decode_splits(const DecodeProblem& problem, const SplitCosts& costs) {
  const std::int64_t splits = Splitting(problem, costs).best().splits;
  return {splits, cost_of_splits(problem, costs, splits)};
}

std::string decode_splits_text(const DecodeSpec& spec, int row_tile, const CostModel& model) {
  const AttentionSpec& a = spec.attention;
  const SplitCosts costs = split_costs(a, {spec.rows, row_tile, spec.combines_tiles}, model);
  ProgramBuilder b("splits");
  const auto size = [&](std::optional<int> fixed, const char* name) {
    return fixed ? b.constant(*fixed, DType::i32) : b.scalar(name, DType::i32);
  };
  const int heads = spec.packs_heads() && a.kv_heads ? a.kv_heads : a.heads;
  const Tile batch = size(a.batch, "B");
  // Of packed sequences, lengths are the mean.
  const auto mean = [&](const Tile& all) { return quotient_up(all, maximum(batch, 1)); };
  const Tile q_len = a.packed() ? mean(size(a.q_len, "Tq")) : size(a.q_len, "Sq");
  const Tile kv_len = a.paged()    ? size({}, "max_pages") * a.page_size
                      : a.packed() ? mean(size(a.kv_len, "Tk"))
                                   : size(a.kv_len, "Sk");
  const int rows_of_head = spec.packs_heads() ? a.group() : 1;
  const DecodeSizes<Tile> problem{.batch = batch,
                                  .heads = size(a.heads ? std::optional(heads) : std::nullopt, "H"),
                                  .row_tiles = quotient_up(q_len * rows_of_head, row_tile),
                                  .keys = KeyRange(a).count(q_len, kv_len),
                                  .rows = {},
                                  .multiprocessors = size({}, "multiprocessors")};
  return write_expression(b.function(), Splitting(problem, costs).best().splits.id());
}

}  // namespace flashcore
