// Work that nobody waits for, on a few threads of this process's own.
#pragma once

#include <functional>

namespace flashcore {

/// Runs `work` some time soon; what it throws is lost. A process that ends waits for what has begun
/// and drops the rest.
void run_in_background(std::function<void()> work);

/// Waits for what has begun, drops the rest, and runs nothing more: for hosts whose own end comes
/// before that of the process (Python's), and that work may call.
void finish_background();

}  // namespace flashcore
