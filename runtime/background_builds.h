// What kernels_at_hand.h and alternatives_at_hand.h share: both build kernels in the background while
// launches run other kernels.
#pragma once

#include "runtime/cuda/driver.h"
#include "runtime/hooks.h"
#include "runtime/no_fork.h"

namespace flashcore {

/// Whether a graph captures the stream. Unlike is_captured, false where the driver has a complaint about
/// the stream: the launch that follows tells it.
bool is_being_captured(int device, CudaStream stream);

/// Whether, by the mode of compiling, a launch waits until the kernel that it wants is built, rather than
/// run another.
bool waits_for_the_best();

/// While a thread holds one, no fork happens and no hook of the host is called. So a child process finds
/// no lock that is held, and no kernel that a thread was building which the child does not have.
struct NoForkSection {
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
};

}  // namespace flashcore
