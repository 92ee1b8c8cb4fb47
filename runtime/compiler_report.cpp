#include "runtime/compiler_report.h"

#include <charconv>

namespace flashcore {
namespace {

// The number right before `unit`, as in "24 bytes stack frame"; 0 when there is none.
int number_before(std::string_view line, std::string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == std::string_view::npos) return 0;
  const std::size_t last = line.find_last_not_of(' ', at == 0 ? 0 : at - 1);
  if (last == std::string_view::npos) return 0;
  std::size_t first = last;
  while (first > 0 && line[first - 1] >= '0' && line[first - 1] <= '9') --first;
  int number = 0;
  std::from_chars(line.data() + first, line.data() + last + 1, number);
  return number;
}

// "(C7510)", of the family of messages about Hopper's instructions that lost their point: wgmma its
// asynchrony, setmaxnreg its effect. Empty if there is none.
std::string_view lost_code(std::string_view line) {
  const std::size_t at = line.find("(C75");
  if (at == std::string_view::npos || line.find(')', at) != at + 6) return {};
  return line.substr(at, 7);
}

// One line a code: ptxas repeats itself for every instruction.
void note_serialised(std::vector<std::string>& lines, std::string_view line) {
  const std::string_view code = lost_code(line);
  if (code.empty()) return;
  for (const std::string& known : lines) {
    if (lost_code(known) == code) return;
  }
  lines.emplace_back(line);
}

}  // namespace

std::optional<Resources> read_compiler_report(std::string_view log, std::string_view entry) {
  Resources found;
  bool complete = false;
  std::string_view function;  // the one that the current lines are about
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);

    constexpr std::string_view heading = "Function properties for ";
    note_serialised(found.serialised, line);
    if (const std::size_t at = line.find(heading); at != std::string_view::npos) {
      function = line.substr(at + heading.size());
    } else if (function != entry) {
      continue;
    } else if (line.find("bytes stack frame") != std::string_view::npos) {
      found.stack_bytes = number_before(line, "bytes stack frame");
      found.spill_store_bytes = number_before(line, "bytes spill stores");
      found.spill_load_bytes = number_before(line, "bytes spill loads");
    } else if (line.find(": Used ") != std::string_view::npos) {
      found.registers = number_before(line, "registers");
      found.barriers = number_before(line, "barriers");
      found.static_shared_bytes = number_before(line, "bytes smem");
      complete = true;
    }
  }
  if (!complete) return std::nullopt;
  return found;
}

}  // namespace flashcore
