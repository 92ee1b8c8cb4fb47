// What only tests on a GPU need of the driver: streams and graphs.
#pragma once

#include <gtest/gtest.h>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/shared_library.h"

namespace flashcore::test {

struct GraphFunctions {
  int (*cuStreamCreate)(CudaStream*, unsigned);
  int (*cuStreamSynchronize)(CudaStream);
  int (*cuStreamBeginCapture_v2)(CudaStream, int);
  int (*cuStreamEndCapture)(CudaStream, void**);
  int (*cuGraphInstantiateWithFlags)(void**, void*, unsigned long long);
  int (*cuGraphLaunch)(void*, CudaStream);
  int (*cuCtxSynchronize)();

  GraphFunctions() {
    const SharedLibrary library = SharedLibrary::open("libcuda.so.1");
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(library.symbol(name));
      EXPECT_NE(function, nullptr) << name;
    };
    find("cuStreamCreate", cuStreamCreate);
    find("cuStreamSynchronize", cuStreamSynchronize);
    find("cuStreamBeginCapture_v2", cuStreamBeginCapture_v2);
    find("cuStreamEndCapture", cuStreamEndCapture);
    find("cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags);
    find("cuGraphLaunch", cuGraphLaunch);
    find("cuCtxSynchronize", cuCtxSynchronize);
  }
};

inline const GraphFunctions& graphs() {
  static const GraphFunctions functions;
  return functions;
}

}  // namespace flashcore::test
