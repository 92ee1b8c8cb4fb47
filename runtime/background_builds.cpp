#include "runtime/background_builds.h"

#include "runtime/compile_mode.h"

namespace flashcore {

bool is_being_captured(int device, CudaStream stream) {
  int status = 0;
  return device >= 0 && Driver::get().cuStreamIsCapturing(stream, &status) == 0 && status != 0;
}

bool waits_for_the_best() {
  const CompileMode mode = compile_mode();
  return mode == CompileMode::eager || mode == CompileMode::forbid;
}

}  // namespace flashcore
