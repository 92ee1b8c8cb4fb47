#include "tests/runtime/support/fake_cuda.h"

#include <cstdlib>

#include <dlfcn.h>

namespace flashcore::test {

std::string fake_cuda_file() { return FLASHCORE_FAKE_CUDA; }

FakeCuda& fake_cuda() {
  static FakeCuda* const state = [] {
    setenv("FLASHCORE_LIBCUDA", fake_cuda_file().c_str(), 1);
    void* const library = dlopen(fake_cuda_file().c_str(), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "flashcore_fake_cuda"))();
  }();
  return *state;
}

}  // namespace flashcore::test
