#include "codegen/schedule_checks.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "codegen/analysis/box_positions.h"
#include "codegen/analysis/position_axis.h"
#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_split.h"

namespace flashcore {
namespace {

using namespace ir;

/// What a rule sees, and where it puts its reasons.
struct ScheduleCheck {
  const Function& f;
  const Schedule& schedule;
  const Target& target;
  std::vector<Reason>& reasons;

  void refuse(std::string what, std::string why, std::string fix,
              std::function<void(Schedule&)> mend = {}, std::string mended = {}) const {
    reasons.push_back({{std::move(what), std::move(why), std::move(fix), {}},
                       std::move(mend),
                       std::move(mended)});
  }
};

using Rule = void (*)(const ScheduleCheck&);

bool is_tiled(const Axis& axis) {
  if (axis.alias_of) return false;  // it has the tiles of another
  return axis.kind == AxisKind::tiles || axis.kind == AxisKind::parallel_tiles;
}

std::string tiled_axes(const Function& f) {
  std::string list;
  for (const Axis& axis : f.axes)
    if (is_tiled(axis)) list += (list.empty() ? "" : ", ") + axis.name;
  return list;
}

/// What the schedule's instruction needs of the target and of the rest of the schedule.
const TensorInstruction& described(const ScheduleCheck& check) {
  return describe(check.schedule.instruction);
}

void instruction(const ScheduleCheck& check) {
  const TensorInstruction& described_one = described(check);
  const std::string name(name_of(described_one.name));
  if (described_one.available && !(check.target.*described_one.available))
    check.refuse(fmt::format("instruction {} on {}", name, check.target.name),
                 "the target does not have it", std::string(described_one.instead));
  if (described_one.opaque && check.schedule.softmax == Softmax::registers)
    check.refuse(
        fmt::format("instruction {} with softmax = registers", name),
        "which lane holds which element of its fragments is not documented", "softmax = shared",
        [](Schedule& s) { s.softmax = Softmax::shared; }, "softmax = shared");
}

void copies(const ScheduleCheck& check) {
  if (check.schedule.copy == CopyInstruction::cp_async && !check.target.async_copy)
    check.refuse(fmt::format("copy cp_async on {}", check.target.name),
                 "the target does not have it", "copy = vector, or a target from sm_80 up");
}

/// The copy engine brings tiles to warpgroups of their own, which read them there.
void warpgroups(const ScheduleCheck& check) {
  const Schedule& s = check.schedule;
  const TensorInstruction& products = described(check);
  const std::string name(name_of(products.name));
  const bool copies = s.copy == CopyInstruction::tma;
  if (copies && !check.target.tma)
    check.refuse(fmt::format("copy tma on {}", check.target.name), "the target does not have it",
                 "copy = cp_async, or target sm_90a");
  if (products.by_copy_engine != copies)
    check.refuse(
        copies ? "copy tma without instruction = wgmma"
               : fmt::format("instruction {} without copy = tma", name),
        "wgmma reads tiles from shared memory, where only the copy engine puts them",
        "both or neither",
        [](Schedule& other) {
          other.instruction = Instruction::wgmma;
          other.copy = CopyInstruction::tma;
        },
        "instruction = wgmma and copy = tma");
  if (!products.by_copy_engine) return;
  if (s.softmax == Softmax::shared)
    check.refuse(
        fmt::format("instruction {} with softmax = shared", name),
        "its accumulators are in registers with a known layout", "softmax = registers",
        [](Schedule& other) { other.softmax = Softmax::registers; }, "softmax = registers");
  if (s.warps_n != 1 || s.warps_m % products.warps != 0 || s.warps_m < products.warps ||
      s.warps_m > products.most_warps)
    check.refuse(
        fmt::format("instruction {} with {} x {} warps", name, s.warps_m, s.warps_n),
        "the rows are divided among one to three warpgroups of four warps",
        "warps_m = 8 and warps_n = 1",
        [](Schedule& other) { other.warps_m = 8, other.warps_n = 1; },
        "warps_m = 8 and warps_n = 1");
}

/// Whether a product reads the value, perhaps transposed.
bool feeds_product(const Function& f, ValueId value) {
  return std::ranges::any_of(f.ops, [&](const Op& op) {
    if (op.code == OpCode::transpose && op.operands[0] == value)
      return feeds_product(f, op.results[0]);
    return op.code == OpCode::dot && (op.operands[0] == value || op.operands[1] == value);
  });
}

/// The copy engine takes boxes of a tensor.
void computed_rows(const ScheduleCheck& check) {
  if (check.schedule.copy != CopyInstruction::tma) return;
  for (const Op& op : check.f.ops) {
    if (op.code != OpCode::load || !has_computed_positions(check.f, op) ||
        !feeds_product(check.f, op.results[0]))
      continue;
    const Axis& rows = check.f[check.f.origin(check.f[op.results[0]].type.axes[0])];
    const auto tile = check.schedule.tiles.find(rows.name);
    if (tile == check.schedule.tiles.end()) continue;
    if (const std::string why = why_no_box(check.f, op, tile->second); !why.empty())
      return check.refuse(
          fmt::format("copy tma of {} at computed positions", check.f[op.tensor].name), why,
          fmt::format("a tile along {} that divides what the positions are divided by, or "
                      "instruction = mma_m16n8k16 and copy = cp_async, which copies row by row",
                      rows.name));
  }
}

void budgets_by_default(Schedule& s) { s.producer_registers = s.consumer_registers = 0; }

void register_budgets(const ScheduleCheck& check) {
  const Schedule& s = check.schedule;
  if (s.copy != CopyInstruction::tma || !s.producer) {
    if (s.producer_registers || s.consumer_registers)
      check.refuse(
          fmt::format("{} with {}", s.producer ? "copy other than tma" : "producer = false",
                      s.consumer_registers
                          ? fmt::format("consumer_registers = {}", s.consumer_registers)
                          : fmt::format("producer_registers = {}", s.producer_registers)),
          "all threads of the block have the same role, and equally many registers", "0 for both",
          budgets_by_default, "producer_registers = 0 and consumer_registers = 0");
    return;
  }
  if (s.consumer_threads() % 128 != 0 || s.consumer_threads() < 128) return;
  const auto fits = [](int registers) {
    return registers == 0 || (registers >= 24 && registers <= 240 && registers % 8 == 0);
  };
  const RegisterSplit split = register_split(s);
  // A warpgroup waits for what it takes until others have given it back: for more, for ever.
  const int start = registers_at_start(s.threads(), s.blocks_per_processor);
  const int used = registers_of_block(s, split), all = s.threads() * start;
  if (fits(s.producer_registers) && fits(s.consumer_registers) &&
      split.producer <= split.consumer && used <= all)
    return;
  check.refuse(
      fmt::format("{} registers for a thread of the producer and {} for one of the consumers",
                  split.producer, split.consumer),
      fmt::format("each is a multiple of 8 from 24 to 240, the producer's is the lesser, and they "
                  "divide the {} that {} threads start with, {} each, not {}",
                  all, s.threads(), start, used),
      "0 for both, which divides the registers that there are", budgets_by_default,
      "producer_registers = 0 and consumer_registers = 0");
}

/// Without a producer one warpgroup computes and copies: its own waits say that a slot is free.
void no_producer(const ScheduleCheck& check) {
  const Schedule& s = check.schedule;
  if (s.producer) return;
  const auto refuse = [&](const std::string& what, std::string why, std::string fix) {
    check.refuse(
        "producer = false " + what, std::move(why), std::move(fix),
        [](Schedule& other) { other.producer = true; }, "producer = true");
  };
  if (s.copy != CopyInstruction::tma)
    return refuse("without copy = tma", "only with copy = tma does a block have a producer",
                  "producer = true");
  if (s.warps_m != 4)
    refuse(
        fmt::format("with warps_m = {}", s.warps_m),
        "a warpgroup waits for its own products to have read a slot, and not for those of another",
        "warps_m = 4, or producer = true");
  if (s.persistent)
    refuse("with persistent = true",
           "the producer is what issues the next tile's loads during a store",
           "persistent = false, or producer = true");
}

void ping_pong(const ScheduleCheck& check) {
  const Schedule& s = check.schedule;
  if (!s.ping_pong || !described(check).asynchronous || s.consumer_threads() != 128) return;
  check.refuse(
      "ping_pong = true with one warpgroup", "ping-pong needs a second warpgroup",
      "ping_pong = false", [](Schedule& other) { other.ping_pong = false; }, "ping_pong = false");
}

void outer_stages(const ScheduleCheck& check) {
  const Schedule& s = check.schedule;
  if (s.outer_stages == 1 || (s.outer_stages == 2 && s.has_next_tiles())) return;
  check.refuse(
      fmt::format("outer_stages = {}{}", s.outer_stages,
                  s.has_next_tiles() ? "" : " without persistent = true"),
      "a tile loaded outside loops has one slot, or two in a block that computes several tiles",
      "1", [](Schedule& other) { other.outer_stages = 1; }, "outer_stages = 1");
}

void sums_by_products(const ScheduleCheck& check) {
  if (check.schedule.sums_by_products && described(check).column_step > 8)
    check.refuse(
        "sums_by_products = true without instruction = wgmma",
        "its tile of ones is eight columns, as only wgmma takes", "sums_by_products = false",
        [](Schedule& other) { other.sums_by_products = false; }, "sums_by_products = false");
}

void chains(const ScheduleCheck& check) {
  const int chains = check.schedule.reduction_chains;
  if (chains != 1 && chains != 2 && chains != 4)
    check.refuse(
        fmt::format("reduction_chains = {}", chains),
        "the fragments of a row are divided among 1, 2 or 4 chains", "1",
        [](Schedule& other) { other.reduction_chains = 1; }, "reduction_chains = 1");
}

void tile_scheduler(const ScheduleCheck& check) {
  if (check.schedule.tile_scheduler == PersistentScheduler::dynamic && !check.schedule.persistent)
    check.refuse(
        "tile_scheduler = dynamic without persistent = true",
        "a block that computes one tile needs no tile scheduler", "tile_scheduler = serpentine",
        [](Schedule& other) { other.tile_scheduler = PersistentScheduler::serpentine; },
        "tile_scheduler = serpentine");
}

void persistence(const ScheduleCheck& check) {
  if (!check.schedule.persistent) {
    if (check.schedule.grid_order == GridOrder::grouped)
      check.refuse(
          "grid_order = grouped without persistent = true",
          "the hardware orders blocks by their three grid axes only", "tiles_first or tiles_last",
          [](Schedule& other) { other.grid_order = GridOrder::tiles_first; },
          "grid_order = tiles_first");
    return;
  }
  if (check.schedule.copy != CopyInstruction::tma)
    check.refuse(
        "persistent = true without copy = tma",
        "only the copy engine can load the next tile during the epilogue", "persistent = false",
        [](Schedule& other) { other.persistent = false; }, "persistent = false");
  for (const Axis& axis : check.f.axes)
    if (axis.ragged)
      check.refuse(
          "persistent = true with a ragged axis", fmt::format("a block places {} once", axis.name),
          "persistent = false", [](Schedule& other) { other.persistent = false; },
          "persistent = false");
}

void positions(const ScheduleCheck& check) {
  const Schedule& s = check.schedule;
  if (s.positions_per_block == 1) return;
  const auto refuse = [&](const std::string& beside, std::string why,
                          std::string fix = "positions_per_block = 1") {
    check.refuse(
        fmt::format("positions_per_block = {}{}", s.positions_per_block, beside), std::move(why),
        std::move(fix), [](Schedule& other) { other.positions_per_block = 1; },
        "positions_per_block = 1");
  };
  if (s.positions_per_block < 1)
    return refuse("", "a block computes at least one position", "1 or more");
  if (!last_position_axis(check.f))
    return refuse("", "the program has no parallel axis of single positions");
  if (s.copy != CopyInstruction::tma || !s.producer)
    refuse(s.copy == CopyInstruction::tma ? " with producer = false" : " without copy = tma",
           "the producer is what issues the next position's loads during a store");
  if (s.persistent)
    refuse(" with persistent = true", "a persistent block computes all positions anyway");
  if (s.cluster_splits > 1)
    refuse(fmt::format(" with cluster_splits = {}", s.cluster_splits),
           "the blocks that split a loop have the same tile of rows, and all run at the same time");
}

void cluster_splits(const ScheduleCheck& check) {
  const Schedule& s = check.schedule;
  const int blocks = s.cluster_splits;
  if (blocks == 1) return;
  const auto refuse = [&](const std::string& beside, std::string why,
                          std::string fix = "cluster_splits = 1") {
    check.refuse(
        fmt::format("cluster_splits = {}{}", blocks, beside), std::move(why), std::move(fix),
        [](Schedule& other) { other.cluster_splits = 1; }, "cluster_splits = 1");
  };
  if (blocks != 2 && blocks != 4 && blocks != 8)
    return refuse("", "a loop is split over 2, 4 or 8 blocks of a cluster", "1, 2, 4 or 8");
  if (s.copy != CopyInstruction::tma)
    refuse(" without copy = tma", "only targets with copy = tma have clusters of blocks");
  if (s.persistent)
    refuse(" with persistent = true",
           "the blocks that split a loop have the same tile of rows, and all run at the same time");
  if (std::ranges::any_of(check.f.tensors,
                          [](const Tensor& tensor) { return tensor.unwritten.has_value(); }))
    refuse(" with probes",
           "no block has a value of the loop before all blocks have combined their partials");
}

void number_formats(const ScheduleCheck& check) {
  const bool used = std::any_of(check.f.values.begin(), check.f.values.end(),
                                [](const Value& value) { return value.type.dtype == DType::bf16; });
  if (used && !check.target.bf16)
    check.refuse(fmt::format("bf16 on {}", check.target.name),
                 "its tensor cores take f16 only, and it has no conversion from f32 to bf16",
                 "f16, or a target from sm_80 up");
}

void register_limit(const ScheduleCheck& check) {
  const int registers = check.target.registers_per_thread;
  if (check.schedule.register_limit < 24 || check.schedule.register_limit > registers)
    check.refuse(
        fmt::format("register_limit = {}", check.schedule.register_limit),
        fmt::format("a thread of {} has 24 to {}", check.target.name, registers),
        fmt::format("{}", registers), [=](Schedule& s) { s.register_limit = registers; },
        fmt::format("register_limit = {}", registers));
}

void shared_limit(const ScheduleCheck& check) {
  if (check.schedule.shared_limit < 0 ||
      check.schedule.shared_limit > check.target.shared_per_block)
    check.refuse(
        fmt::format("shared_limit = {}", check.schedule.shared_limit),
        fmt::format("a block of {} has up to {} bytes of shared memory", check.target.name,
                    check.target.shared_per_block),
        "0, which is all of it", [](Schedule& s) { s.shared_limit = 0; }, "shared_limit = 0");
}

std::int64_t thread_count(const Schedule& schedule) {
  return std::int64_t{32} * schedule.warps_m * schedule.warps_n;
}

bool warps_fit(const ScheduleCheck& check) {
  return check.schedule.warps_m >= 1 && check.schedule.warps_n >= 1 &&
         thread_count(check.schedule) <= check.target.threads_per_block;
}

void resident_blocks(const ScheduleCheck& check) {
  const int blocks = check.schedule.blocks_per_processor;
  const int threads = warps_fit(check) ? check.schedule.threads() : 128;
  const int most = check.target.threads_per_processor / threads;
  if (blocks < 1 || blocks > most)
    check.refuse(
        fmt::format("{} blocks of {} threads a multiprocessor", blocks, threads),
        fmt::format("{} holds {} threads", check.target.name, check.target.threads_per_processor),
        fmt::format("blocks_per_processor = {}", most),
        [](Schedule& s) { s.blocks_per_processor = 1; }, "blocks_per_processor = 1");
}

void tiles(const ScheduleCheck& check) {
  for (const auto& [name, size] : check.schedule.tiles) {
    const AxisId axis = check.f.find_axis(name);
    if (axis && check.f[axis].alias_of) {
      const std::string& origin = check.f[check.f.origin(axis)].name;
      check.refuse(fmt::format("a tile size for \"{}\"", name),
                   fmt::format("it is another name of {}, and has its tiles", origin),
                   fmt::format("an entry for {} alone", origin),
                   [name = name](Schedule& s) { s.tiles.erase(name); });
    } else if (!axis || !is_tiled(check.f[axis])) {
      check.refuse(fmt::format("a tile size for \"{}\"", name),
                   fmt::format("program {} has no tiled axis of that name", check.f.name),
                   fmt::format("its tiled axes are {}", tiled_axes(check.f)),
                   [name = name](Schedule& s) { s.tiles.erase(name); });
    } else if (size < 16 || size % 16 != 0 || size > 1024) {
      // Which multiple fits depends on the warps as well; four of them, the default, take this one.
      const int near = (std::clamp(size, 1, 1024) + 63) / 64 * 64;
      check.refuse(
          fmt::format("tile of {} along {}", size, name),
          "tensor cores and swizzled shared memory work in steps of 16",
          "a multiple of 16 up to 1024", [name = name, near](Schedule& s) { s.tiles[name] = near; },
          fmt::format("a tile of {} along {}", near, name));
    }
  }
}

void warps(const ScheduleCheck& check) {
  if (!warps_fit(check))
    check.refuse(
        fmt::format("{} x {} warps", check.schedule.warps_m, check.schedule.warps_n),
        fmt::format("that is {} threads; a block of {} has 32 to {}", thread_count(check.schedule),
                    check.target.name, check.target.threads_per_block),
        "warps_m = 4 and warps_n = 1 fit everywhere",
        [](Schedule& s) { s.warps_m = 4, s.warps_n = 1; }, "warps_m = 4 and warps_n = 1");
}

void stages(const ScheduleCheck& check) {
  if (check.schedule.stages < 1 || check.schedule.stages > 8)
    check.refuse(
        fmt::format("{} stages", check.schedule.stages),
        "a pipeline has 1 to 8 tiles in flight or in use", "2 or 3",
        [](Schedule& s) { s.stages = 2; }, "stages = 2");
}

void missing_tiles(const ScheduleCheck& check) {
  for (const Axis& axis : check.f.axes)
    if (is_tiled(axis) && !check.schedule.tiles.contains(axis.name))
      check.refuse(
          fmt::format("no tile size for axis {}", axis.name),
          fmt::format("program {} cuts it into tiles", check.f.name),
          fmt::format("schedule.tiles[\"{}\"] = 64", axis.name),
          [name = axis.name](Schedule& s) { s.tiles[name] = 64; },
          fmt::format("a tile of 64 along {}", axis.name));
}

constexpr Rule rules[] = {instruction,      copies,          warpgroups,     computed_rows,
                          register_budgets, no_producer,     chains,         ping_pong,
                          sums_by_products, outer_stages,    persistence,    positions,
                          tile_scheduler,   cluster_splits,  number_formats, register_limit,
                          shared_limit,     resident_blocks, tiles,          warps,
                          stages,           missing_tiles};

}  // namespace

std::vector<Reason> check_schedule(const Function& f, const PassContext& context) {
  std::vector<Reason> reasons;
  const ScheduleCheck check{f, context.schedule, context.target, reasons};
  for (const Rule rule : rules) rule(check);
  return reasons;
}

}  // namespace flashcore
