// Stands in for libnvrtc.so: it tells a version and is small, so that whoever opens it a thousand
// times has time for it. It compiles nothing.
#include <cstddef>

namespace {
constexpr int refused = 1;
}

#pragma GCC visibility push(default)
extern "C" {
int nvrtcVersion(int* major, int* minor) {
  *major = 99;
  *minor = 7;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
int nvrtcGetSupportedArchs(int* architectures) {
  *architectures = 90;
  return 0;
}
int nvrtcCreateProgram(void**, const char*, const char*, int, const char* const*,
                       const char* const*) {
  return refused;
}
int nvrtcDestroyProgram(void**) { return refused; }
int nvrtcCompileProgram(void*, int, const char* const*) { return refused; }
int nvrtcGetProgramLogSize(void*, std::size_t*) { return refused; }
int nvrtcGetProgramLog(void*, char*) { return refused; }
int nvrtcGetCUBINSize(void*, std::size_t*) { return refused; }
int nvrtcGetCUBIN(void*, char*) { return refused; }
int nvrtcGetPTXSize(void*, std::size_t*) { return refused; }
int nvrtcGetPTX(void*, char*) { return refused; }
const char* nvrtcGetErrorString(int) { return "it compiles nothing"; }
}
#pragma GCC visibility pop
