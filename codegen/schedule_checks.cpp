#include "codegen/schedule_checks.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "codegen/analysis/position_axis.h"
#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_split.h"

namespace flashcore {
namespace {

using namespace ir;

/// What a rule sees, and where it puts its reasons.
struct Look {
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

using Rule = void (*)(const Look&);

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
const TensorInstruction& described(const Look& look) { return describe(look.schedule.instruction); }

void instruction(const Look& look) {
  const TensorInstruction& described_one = described(look);
  const std::string name(name_of(described_one.name));
  if (described_one.available && !(look.target.*described_one.available))
    look.refuse(fmt::format("instruction {} on {}", name, look.target.name),
                "the target does not have it", std::string(described_one.instead));
  if (described_one.opaque && look.schedule.softmax == Softmax::registers)
    look.refuse(
        fmt::format("instruction {} with softmax = registers", name),
        "which lane holds which element of its blocks is not documented", "softmax = shared",
        [](Schedule& s) { s.softmax = Softmax::shared; }, "softmax = shared");
}

void copies(const Look& look) {
  if (look.schedule.copy == CopyInstruction::cp_async && !look.target.async_copy)
    look.refuse(fmt::format("copy cp_async on {}", look.target.name), "the target does not have it",
                "copy = vector, or a target from sm_80 up");
}

/// The copy engine brings tiles to warpgroups of their own, which read them there.
void warpgroups(const Look& look) {
  const Schedule& s = look.schedule;
  const TensorInstruction& products = described(look);
  const std::string name(name_of(products.name));
  const bool copies = s.copy == CopyInstruction::tma;
  if (copies && !look.target.tma)
    look.refuse(fmt::format("copy tma on {}", look.target.name), "the target does not have it",
                "copy = cp_async, or target sm_90a");
  if (products.by_copy_engine != copies)
    look.refuse(
        copies ? "copy tma without instruction = wgmma"
               : fmt::format("instruction {} without copy = tma", name),
        "tiles come from the copy engine to the warpgroups that multiply them, and no other way",
        "both or neither",
        [](Schedule& other) {
          other.instruction = Instruction::wgmma;
          other.copy = CopyInstruction::tma;
        },
        "instruction = wgmma and copy = tma");
  if (!products.by_copy_engine) return;
  if (s.softmax == Softmax::shared)
    look.refuse(
        fmt::format("instruction {} with softmax = shared", name),
        "its sums are in registers of a known order", "softmax = registers",
        [](Schedule& other) { other.softmax = Softmax::registers; }, "softmax = registers");
  if (s.warps_n != 1 || s.warps_m % products.warps != 0 || s.warps_m < products.warps ||
      s.warps_m > products.most_warps)
    look.refuse(
        fmt::format("instruction {} with {} x {} warps", name, s.warps_m, s.warps_n),
        "one to three warpgroups of four warps each lie along the rows",
        "warps_m = 8 and warps_n = 1",
        [](Schedule& other) { other.warps_m = 8, other.warps_n = 1; },
        "warps_m = 8 and warps_n = 1");
}

void share_by_default(Schedule& s) { s.producer_registers = s.consumer_registers = 0; }

void register_shares(const Look& look) {
  const Schedule& s = look.schedule;
  if (s.copy != CopyInstruction::tma || !s.producer) {
    if (s.producer_registers || s.consumer_registers)
      look.refuse(fmt::format("{} with {}", s.producer ? "copy other than tma" : "producer = false",
                              s.consumer_registers
                                  ? fmt::format("consumer_registers = {}", s.consumer_registers)
                                  : fmt::format("producer_registers = {}", s.producer_registers)),
                  "all threads of the block do the same, and have as many registers", "0 for both",
                  share_by_default, "producer_registers = 0 and consumer_registers = 0");
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
  look.refuse(
      fmt::format("{} registers for a thread of the producer and {} for one of the consumers",
                  split.producer, split.consumer),
      fmt::format("each is a multiple of 8 from 24 to 240, the producer's is the lesser, and they "
                  "share out the {} that {} threads begin with, {} each, not {}",
                  all, s.threads(), start, used),
      "0 for both, which shares out what there is", share_by_default,
      "producer_registers = 0 and consumer_registers = 0");
}

/// Who computes asks for copies as well: one warpgroup, whose own waits say that a slot is free.
void no_producer(const Look& look) {
  const Schedule& s = look.schedule;
  if (s.producer) return;
  const auto refuse = [&](const std::string& what, std::string why, std::string fix) {
    look.refuse(
        "producer = false " + what, std::move(why), std::move(fix),
        [](Schedule& other) { other.producer = true; }, "producer = true");
  };
  if (s.copy != CopyInstruction::tma)
    return refuse("without copy = tma",
                  "only copies by the copy engine have a producer to leave out", "producer = true");
  if (s.warps_m != 4)
    refuse(fmt::format("with warps_m = {}", s.warps_m),
           "a warpgroup knows of its own products when they have read a slot, and not of another's",
           "warps_m = 4, or producer = true");
  if (s.persistent)
    refuse("with persistent = true",
           "what brings the next tile's loads during a store is the producer",
           "persistent = false, or producer = true");
}

void turns(const Look& look) {
  const Schedule& s = look.schedule;
  if (!s.alternate || !described(look).asynchronous || s.consumer_threads() != 128) return;
  look.refuse(
      "alternate = true with one warpgroup", "one warpgroup has nobody to take turns with",
      "alternate = false", [](Schedule& other) { other.alternate = false; }, "alternate = false");
}

void outer_stages(const Look& look) {
  const Schedule& s = look.schedule;
  if (s.outer_stages == 1 || (s.outer_stages == 2 && s.has_next_tiles())) return;
  look.refuse(
      fmt::format("outer_stages = {}{}", s.outer_stages,
                  s.has_next_tiles() ? "" : " without persistent = true"),
      "a tile loaded outside loops has one slot, or two where a block works through several tiles",
      "1", [](Schedule& other) { other.outer_stages = 1; }, "outer_stages = 1");
}

void sums_by_products(const Look& look) {
  if (look.schedule.sums_by_products && described(look).column_step > 8)
    look.refuse(
        "sums_by_products = true without instruction = wgmma",
        "its tile of ones is eight columns, as only wgmma takes", "sums_by_products = false",
        [](Schedule& other) { other.sums_by_products = false; }, "sums_by_products = false");
}

void chains(const Look& look) {
  const int chains = look.schedule.reduction_chains;
  if (chains != 1 && chains != 2 && chains != 4)
    look.refuse(
        fmt::format("reduction_chains = {}", chains),
        "a row's fragments are dealt out to 1, 2 or 4 chains", "1",
        [](Schedule& other) { other.reduction_chains = 1; }, "reduction_chains = 1");
}

void tile_order(const Look& look) {
  if (look.schedule.tile_order == TileOrder::counter && !look.schedule.persistent)
    look.refuse(
        "tile_order = counter without persistent = true",
        "a block that computes one tile draws no other", "tile_order = rounds",
        [](Schedule& other) { other.tile_order = TileOrder::rounds; }, "tile_order = rounds");
}

void persistence(const Look& look) {
  if (!look.schedule.persistent) {
    if (look.schedule.grid_order == GridOrder::sections)
      look.refuse(
          "grid_order = sections without persistent = true",
          "the hardware numbers blocks by three axes and no more", "tiles_first or tiles_last",
          [](Schedule& other) { other.grid_order = GridOrder::tiles_first; },
          "grid_order = tiles_first");
    return;
  }
  if (look.schedule.copy != CopyInstruction::tma)
    look.refuse(
        "persistent = true without copy = tma",
        "what a block loads ahead for its next tile the copy engine brings", "persistent = false",
        [](Schedule& other) { other.persistent = false; }, "persistent = false");
  for (const Axis& axis : look.f.axes)
    if (axis.ragged)
      look.refuse(
          "persistent = true with a ragged axis", fmt::format("a block places {} once", axis.name),
          "persistent = false", [](Schedule& other) { other.persistent = false; },
          "persistent = false");
}

void positions(const Look& look) {
  const Schedule& s = look.schedule;
  if (s.positions_per_block == 1) return;
  const auto refuse = [&](const std::string& beside, std::string why,
                          std::string fix = "positions_per_block = 1") {
    look.refuse(
        fmt::format("positions_per_block = {}{}", s.positions_per_block, beside), std::move(why),
        std::move(fix), [](Schedule& other) { other.positions_per_block = 1; },
        "positions_per_block = 1");
  };
  if (s.positions_per_block < 1) return refuse("", "a block computes something", "1 or more");
  if (!last_position_axis(look.f))
    return refuse("", "the program has no parallel axis but those of tiles");
  if (s.copy != CopyInstruction::tma || !s.producer)
    refuse(s.copy == CopyInstruction::tma ? " with producer = false" : " without copy = tma",
           "what brings the next position's loads during a store is the producer");
  if (s.persistent)
    refuse(" with persistent = true", "a persistent block goes through all tiles as it is");
  if (s.loop_blocks > 1)
    refuse(fmt::format(" with loop_blocks = {}", s.loop_blocks),
           "blocks that share out a loop work on one tile of rows, and all are there at once");
}

void loop_blocks(const Look& look) {
  const Schedule& s = look.schedule;
  const int blocks = s.loop_blocks;
  if (blocks == 1) return;
  const auto refuse = [&](const std::string& beside, std::string why,
                          std::string fix = "loop_blocks = 1") {
    look.refuse(
        fmt::format("loop_blocks = {}{}", blocks, beside), std::move(why), std::move(fix),
        [](Schedule& other) { other.loop_blocks = 1; }, "loop_blocks = 1");
  };
  if (blocks != 2 && blocks != 4 && blocks != 8)
    return refuse("", "a cluster has 2, 4 or 8 blocks that share out a loop", "1, 2, 4 or 8");
  if (s.copy != CopyInstruction::tma)
    refuse(" without copy = tma", "blocks have clusters where there is a copy engine");
  if (s.persistent)
    refuse(" with persistent = true",
           "blocks that share out a loop work on one tile of rows, and all are there at once");
  if (std::ranges::any_of(look.f.tensors,
                          [](const Tensor& tensor) { return tensor.unwritten.has_value(); }))
    refuse(" with probes",
           "what a value is in the end no block knows before all have put theirs together");
}

void number_formats(const Look& look) {
  const bool used = std::any_of(look.f.values.begin(), look.f.values.end(),
                                [](const Value& value) { return value.type.dtype == DType::bf16; });
  if (used && !look.target.bf16)
    look.refuse(fmt::format("bf16 on {}", look.target.name),
                "its tensor cores take f16 only, and it has no conversion from f32 to bf16",
                "f16, or a target from sm_80 up");
}

void register_limit(const Look& look) {
  const int registers = look.target.registers_per_thread;
  if (look.schedule.register_limit < 24 || look.schedule.register_limit > registers)
    look.refuse(
        fmt::format("register_limit = {}", look.schedule.register_limit),
        fmt::format("a thread of {} has 24 to {}", look.target.name, registers),
        fmt::format("{}", registers), [=](Schedule& s) { s.register_limit = registers; },
        fmt::format("register_limit = {}", registers));
}

void shared_limit(const Look& look) {
  if (look.schedule.shared_limit < 0 || look.schedule.shared_limit > look.target.shared_per_block)
    look.refuse(
        fmt::format("shared_limit = {}", look.schedule.shared_limit),
        fmt::format("a block of {} has up to {} bytes of shared memory", look.target.name,
                    look.target.shared_per_block),
        "0, which is all of it", [](Schedule& s) { s.shared_limit = 0; }, "shared_limit = 0");
}

std::int64_t thread_count(const Schedule& schedule) {
  return std::int64_t{32} * schedule.warps_m * schedule.warps_n;
}

bool warps_fit(const Look& look) {
  return look.schedule.warps_m >= 1 && look.schedule.warps_n >= 1 &&
         thread_count(look.schedule) <= look.target.threads_per_block;
}

void resident_blocks(const Look& look) {
  const int blocks = look.schedule.blocks_per_processor;
  const int threads = warps_fit(look) ? look.schedule.threads() : 128;
  const int most = look.target.threads_per_processor / threads;
  if (blocks < 1 || blocks > most)
    look.refuse(
        fmt::format("{} blocks of {} threads a multiprocessor", blocks, threads),
        fmt::format("{} holds {} threads", look.target.name, look.target.threads_per_processor),
        fmt::format("blocks_per_processor = {}", most),
        [](Schedule& s) { s.blocks_per_processor = 1; }, "blocks_per_processor = 1");
}

void tiles(const Look& look) {
  for (const auto& [name, size] : look.schedule.tiles) {
    const AxisId axis = look.f.find_axis(name);
    if (axis && look.f[axis].alias_of) {
      const std::string& origin = look.f[look.f.origin(axis)].name;
      look.refuse(fmt::format("a tile size for \"{}\"", name),
                  fmt::format("it is another name of {}, and has its tiles", origin),
                  fmt::format("an entry for {} alone", origin),
                  [name = name](Schedule& s) { s.tiles.erase(name); });
    } else if (!axis || !is_tiled(look.f[axis])) {
      look.refuse(fmt::format("a tile size for \"{}\"", name),
                  fmt::format("program {} has no tiled axis of that name", look.f.name),
                  fmt::format("its tiled axes are {}", tiled_axes(look.f)),
                  [name = name](Schedule& s) { s.tiles.erase(name); });
    } else if (size < 16 || size % 16 != 0 || size > 1024) {
      // Which multiple fits depends on the warps as well; four of them, the default, take this one.
      const int near = (std::clamp(size, 1, 1024) + 63) / 64 * 64;
      look.refuse(
          fmt::format("tile of {} along {}", size, name),
          "tensor cores and swizzled shared memory work in steps of 16",
          "a multiple of 16 up to 1024", [name = name, near](Schedule& s) { s.tiles[name] = near; },
          fmt::format("a tile of {} along {}", near, name));
    }
  }
}

void warps(const Look& look) {
  if (!warps_fit(look))
    look.refuse(
        fmt::format("{} x {} warps", look.schedule.warps_m, look.schedule.warps_n),
        fmt::format("that is {} threads; a block of {} has 32 to {}", thread_count(look.schedule),
                    look.target.name, look.target.threads_per_block),
        "warps_m = 4 and warps_n = 1 fit everywhere",
        [](Schedule& s) { s.warps_m = 4, s.warps_n = 1; }, "warps_m = 4 and warps_n = 1");
}

void stages(const Look& look) {
  if (look.schedule.stages < 1 || look.schedule.stages > 8)
    look.refuse(
        fmt::format("{} stages", look.schedule.stages),
        "a pipeline has 1 to 8 tiles in flight or in use", "2 or 3",
        [](Schedule& s) { s.stages = 2; }, "stages = 2");
}

void missing_tiles(const Look& look) {
  for (const Axis& axis : look.f.axes)
    if (is_tiled(axis) && !look.schedule.tiles.contains(axis.name))
      look.refuse(
          fmt::format("no tile size for axis {}", axis.name),
          fmt::format("program {} cuts it into tiles", look.f.name),
          fmt::format("schedule.tiles[\"{}\"] = 64", axis.name),
          [name = axis.name](Schedule& s) { s.tiles[name] = 64; },
          fmt::format("a tile of 64 along {}", axis.name));
}

constexpr Rule rules[] = {
    instruction, copies,           warpgroups,     register_shares, no_producer,     chains,
    turns,       sums_by_products, outer_stages,   persistence,     positions,       tile_order,
    loop_blocks, number_formats,   register_limit, shared_limit,    resident_blocks, tiles,
    warps,       stages,           missing_tiles};

}  // namespace

std::vector<Reason> check_schedule(const Function& f, const PassContext& context) {
  std::vector<Reason> reasons;
  const Look look{f, context.schedule, context.target, reasons};
  for (const Rule rule : rules) rule(look);
  return reasons;
}

}  // namespace flashcore
