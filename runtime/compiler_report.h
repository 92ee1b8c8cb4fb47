// What ptxas says about a kernel, read from NVRTC's log.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flashcore {

/// What one block or thread of a compiled kernel takes.
struct Resources {
  int registers = 0;             ///< a thread
  int stack_bytes = 0;           ///< a thread, in local memory
  int spill_store_bytes = 0;     ///< a thread
  int spill_load_bytes = 0;      ///< a thread
  int static_shared_bytes = 0;   ///< a block
  int dynamic_shared_bytes = 0;  ///< a block; chosen by the schedule, not by ptxas
  int barriers = 0;              ///< named barriers a block

  /// Lines with a code C75xx, one for each code: wgmma was serialised or made to wait, setmaxnreg
  /// ignored.
  std::vector<std::string> serialised;

  bool operator==(const Resources&) const = default;
};

/// The part of the log about the kernel `entry`; nothing if it has none (a log from a compiler
/// cache).
std::optional<Resources> read_compiler_report(std::string_view log, std::string_view entry);

}  // namespace flashcore
