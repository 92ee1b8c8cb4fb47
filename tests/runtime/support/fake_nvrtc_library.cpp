// Stands in for libnvrtc.so, where the compiler is opened a thousand times, and where a test asks which kernels
// are compiled and not what they compute: its machine code is the source, for a driver that runs nothing
// (fake_cuda_library.cpp), and each kernel has all registers that a thread may have.
#include <algorithm>
#include <cstddef>
#include <string>

namespace {

struct Program {
  std::string source, log;
};

Program& program_of(void* program) { return *static_cast<Program*>(program); }

constexpr int architectures[] = {70, 75, 80, 86, 89, 90, 100, 120};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
int nvrtcVersion(int* major, int* minor) {
  *major = 99;
  *minor = 7;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(std::size(architectures));
  return 0;
}
int nvrtcGetSupportedArchs(int* into) {
  std::ranges::copy(architectures, into);
  return 0;
}
/// `file` is the entry of the kernel and ".cu".
int nvrtcCreateProgram(void** program, const char* source, const char* file, int,
                       const char* const*, const char* const*) {
  const std::string name = file;
  *program = new Program{.source = source,
                         .log = "ptxas info    : Function properties for " +
                                name.substr(0, name.rfind('.')) +
                                "\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill "
                                "loads\nptxas info    : Used 255 registers, used 1 barriers\n"};
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}
int nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
int nvrtcGetProgramLogSize(void* program, std::size_t* size) {
  *size = program_of(program).log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* into) {
  const std::string& log = program_of(program).log;
  std::copy_n(log.c_str(), log.size() + 1, into);
  return 0;
}
int nvrtcGetCUBINSize(void* program, std::size_t* size) {
  *size = program_of(program).source.size();
  return 0;
}
int nvrtcGetCUBIN(void* program, char* into) {
  std::ranges::copy(program_of(program).source, into);
  return 0;
}
int nvrtcGetPTXSize(void* program, std::size_t* size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(void* program, char* into) { return nvrtcGetCUBIN(program, into); }
const char* nvrtcGetErrorString(int) { return "none"; }
}
#pragma GCC visibility pop
