// The rules of schedule_checks.h see what stands in the way before any pass runs; the passes stop
// at the first reason that they find. So a reason is noted, mended in the nearest way that a list
// of changes offers, and the passes run again, until they come through or nothing on the list
// helps.
#include "codegen/why_not.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "codegen/generate.h"
#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_split.h"
#include "codegen/schedule_rules.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

/// Changes that may take a reason out of the way, the least first.
std::vector<Mending> nearby(const Schedule& s) {
  std::vector<Mending> changes;
  if (const TensorInstruction& instruction = describe(s.instruction); instruction.rows_once) {
    const int rows = instruction.rows_of_warp();
    for (const auto& [axis, size] : s.tiles)
      if (size % instruction.rows == 0 && size <= rows * instruction.most_warps)
        changes.push_back(ScheduleCheck::set("warps_m", &Schedule::warps_m, size / rows));
  } else {
    for (const int warps : {s.warps_m, s.warps_n, s.warps_m * s.warps_n})
      for (const auto& [axis, size] : s.tiles)
        if (const int whole = (size + 16 * warps - 1) / (16 * warps) * 16 * warps; whole <= 1024)
          changes.push_back(with_tile(axis, whole));
    changes.push_back({fmt::format("warps_n = 1 and warps_m = {}", s.warps_m * s.warps_n),
                       [](Schedule& c) { c.warps_m *= std::exchange(c.warps_n, 1); }});
    changes.push_back(
        {"warps_m = 1 and warps_n = 1", [](Schedule& c) { c.warps_m = c.warps_n = 1; }});
  }
  for (const std::vector<Mending>& alike : lesser_schedules(s))
    changes.insert(changes.end(), alike.begin(), alike.end());
  changes.push_back({"stages = 1 and tiles of 16 by warp", [](Schedule& c) {
                       c.stages = 1;
                       for (auto& [axis, size] : c.tiles)
                         size = std::min(size, 16 * std::max(c.warps_m, c.warps_n));
                     }});
  return changes;
}

/// A lower bound on the registers a thread needs: what a loop carries and leaves in its registers.
int carried_registers(const Function& f) {
  int most = 0;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    int registers = 0;
    for (ValueId value : op.body ? op.results : std::vector<ValueId>{}) {
      int elements = f[value].layout.space == Space::registers ? 1 : 0;
      for (const AxisLayout& axis : f[value].layout.axes) elements *= axis.fragments * axis.slots;
      registers += elements;
    }
    most = std::max(most, registers);
  });
  return most;
}

/// What tells reasons apart: the words without the numbers, which change with what has been mended.
std::string kind_of(const Complaint& complaint) {
  std::string words = complaint.what + complaint.why;
  std::erase_if(words, [](char c) { return c >= '0' && c <= '9'; });
  return words;
}

/// What a program, lowered with a schedule, needs more of than there is.
std::optional<Complaint> refuse_registers(const Function& lowered, const Schedule& schedule,
                                          const Target& target) {
  const int needed = carried_registers(lowered), budget = register_split(schedule).consumer;
  const int start = registers_at_start(schedule.threads(), schedule.blocks_per_processor);
  const int allowed = budget ? budget : start;
  if (needed <= allowed) return std::nullopt;
  const bool roles = schedule.copy == CopyInstruction::tma;
  return Complaint{
      fmt::format("{} needs more than {} registers a thread", lowered.name, needed),
      fmt::format("a loop carries so many, and {} {}threads in {} block(s) a multiprocessor of {} "
                  "have {} each",
                  roles ? schedule.consumer_threads() : schedule.threads(),
                  roles ? "computing " : "", schedule.blocks_per_processor, target.name, allowed),
      "smaller tiles, more warps for the same rows, or fewer blocks_per_processor",
      {}};
}

}  // namespace

std::vector<std::string> why_not(const Program& program, const Schedule& given,
                                 const Target& target) {
  Schedule schedule = given;
  std::vector<Complaint> reasons;
  std::vector<std::string> taken;  // changes made so far, in words
  std::set<std::string> known;     // every reason so far
  for (const Reason& reason : check_schedule(program.function(), {schedule, target})) {
    reasons.push_back(reason.complaint);
    if (reason.mending.change) reason.mending.change(schedule);
    if (!reason.mending.words.empty()) taken.push_back(reason.mending.words);
    known.insert(kind_of(reason.complaint));
  }
  // What no change mends, such as an instruction that the target lacks, does not stop the passes.
  Target able = target;
  if (!check_schedule(program.function(), {schedule, target}).empty())
    able.mma_m16n8k16 = able.tf32 = able.async_copy = able.bf16 = able.wgmma = able.tma = true;
  // What a schedule is refused for, if it is.
  bool came_through = false;
  const auto attempt = [&](const Schedule& one) -> std::optional<Complaint> {
    came_through = false;
    try {
      Function lowered;
      (void)generate(program, one, able, [&](std::string_view, const Function& f) { lowered = f; });
      came_through = true;
      return refuse_registers(lowered, one, target);
    } catch (const Error& error) {
      return error.complaint();
    }
  };
  // Takes the first change after which the passes come through or find something new.
  const auto mend = [&] {
    for (const Mending& mending : nearby(schedule)) {
      Schedule changed = schedule;
      mending.change(changed);
      if (changed == schedule) continue;
      const std::optional<Complaint> left = attempt(changed);
      if (left && known.contains(kind_of(*left))) continue;
      schedule = std::move(changed);
      taken.push_back(mending.words);
      return true;
    }
    return false;
  };
  while (std::optional<Complaint> complaint = attempt(schedule)) {
    known.insert(kind_of(*complaint));
    if (!taken.empty()) complaint->what += fmt::format(" (taking {})", fmt::join(taken, ", "));
    reasons.push_back(*std::move(complaint));
    // Behind too few registers nothing hides: the passes have come through.
    if (came_through || !mend()) break;
  }
  std::vector<std::string> texts;
  for (const Complaint& complaint : reasons) texts.emplace_back(Error(complaint).what());
  return texts;
}

std::vector<std::string> why_not(const Program& program, std::span<const Schedule> schedules,
                                 const Target& target) {
  std::vector<std::string> first;
  for (const Schedule& schedule : schedules) {
    std::vector<std::string> reasons = why_not(program, schedule, target);
    if (reasons.empty()) return {};
    if (first.empty()) first = std::move(reasons);
  }
  return first;
}

}  // namespace flashcore
