#include "runtime/cuda/nvrtc.h"

#include <algorithm>
#include <filesystem>

#include "dsl/error.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

[[noreturn]] void fail_to_load(const NvrtcFiles& files, std::string why) {
  throw CompileError(
      {.what = fmt::format("the CUDA run-time compiler {} cannot be used", files.library),
       .why = std::move(why),
       .fix = "pip install 'flashcore[nvrtc]', or set FLASHCORE_NVRTC to another one",
       .where = {}});
}

template <class Function>
void resolve(const NvrtcFiles& files, const SharedLibrary& library, const char* name,
             Function& function) {
  function = reinterpret_cast<Function>(library.symbol(name));
  if (function == nullptr) fail_to_load(files, fmt::format("it has no function {}", name));
}

}  // namespace

std::string NvrtcVersion::text() const { return fmt::format("{}.{}", major, minor); }

Nvrtc::Nvrtc(NvrtcFiles files) : files_(std::move(files)) {
  library_ = SharedLibrary::open(files_.library);
  if (!library_.is_open()) fail_to_load(files_, library_.failure());
  load_functions();
  int count = 0;
  if (functions_.nvrtcVersion(&version_.major, &version_.minor) != 0 ||
      functions_.nvrtcGetNumSupportedArchs(&count) != 0) {
    fail_to_load(files_, "it does not tell its version");
  }
  architectures_.resize(static_cast<std::size_t>(count));
  functions_.nvrtcGetSupportedArchs(architectures_.data());
  std::sort(architectures_.begin(), architectures_.end());
  load_builtins();
  log_message(LogLevel::info, "using NVRTC {} from {}", version_.text(), files_.library);
}

void Nvrtc::load_functions() {
#define FLASHCORE_RESOLVE(name) resolve(files_, library_, #name, functions_.name)
  FLASHCORE_RESOLVE(nvrtcVersion);
  FLASHCORE_RESOLVE(nvrtcGetNumSupportedArchs);
  FLASHCORE_RESOLVE(nvrtcGetSupportedArchs);
  FLASHCORE_RESOLVE(nvrtcCreateProgram);
  FLASHCORE_RESOLVE(nvrtcDestroyProgram);
  FLASHCORE_RESOLVE(nvrtcCompileProgram);
  FLASHCORE_RESOLVE(nvrtcGetProgramLogSize);
  FLASHCORE_RESOLVE(nvrtcGetProgramLog);
  FLASHCORE_RESOLVE(nvrtcGetCUBINSize);
  FLASHCORE_RESOLVE(nvrtcGetCUBIN);
  FLASHCORE_RESOLVE(nvrtcGetPTXSize);
  FLASHCORE_RESOLVE(nvrtcGetPTX);
  FLASHCORE_RESOLVE(nvrtcGetErrorString);
#undef FLASHCORE_RESOLVE
}

// libnvrtc has no RUNPATH and opens its built-in functions by their bare name, at the first
// compile: it would take another toolkit's, or none. Whoever has been loaded under that name before
// wins, so the neighbour is loaded here, by its full path.
void Nvrtc::load_builtins() {
  const std::string wanted = "libnvrtc-builtins.so." + version_.text();
  for (const std::string& file : files_.builtins) {
    const std::string name = std::filesystem::path(file).filename().string();
    if (name != wanted && !name.starts_with(wanted + ".")) continue;
    const SharedLibrary builtins = SharedLibrary::open(file, SharedLibrary::Symbols::global);
    if (builtins.is_open()) return;
    fail_to_load(files_, builtins.failure());
  }
  log_message(LogLevel::warn, "{} has no {} beside it; the loader has to find one", files_.library,
              wanted);
}

Nvrtc::Result Nvrtc::compile(const std::string& text, const std::string& file_name,
                             std::span<const std::string> options, Output output) const {
  const NoFork whole;
  const Functions& f = functions_;
  Program program = nullptr;
  if (const int code =
          f.nvrtcCreateProgram(&program, text.c_str(), file_name.c_str(), 0, nullptr, nullptr)) {
    return {.code = "", .log = "", .failure = f.nvrtcGetErrorString(code)};
  }
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());

  Result result;
  const int code =
      f.nvrtcCompileProgram(program, static_cast<int>(pointers.size()), pointers.data());
  if (code != 0) result.failure = f.nvrtcGetErrorString(code);

  // Sizes of the texts count their final zero; that of a cubin does not have one.
  std::size_t size = 0;
  if (f.nvrtcGetProgramLogSize(program, &size) == 0 && size > 1) {
    result.log.resize(size);
    f.nvrtcGetProgramLog(program, result.log.data());
    result.log.resize(size - 1);
  }
  if (code == 0 && output == Output::cubin && f.nvrtcGetCUBINSize(program, &size) == 0) {
    result.code.resize(size);
    f.nvrtcGetCUBIN(program, result.code.data());
  } else if (code == 0 && output == Output::ptx && f.nvrtcGetPTXSize(program, &size) == 0) {
    result.code.resize(size);
    f.nvrtcGetPTX(program, result.code.data());
    result.code.resize(size > 0 ? size - 1 : 0);
  }
  f.nvrtcDestroyProgram(&program);
  if (code == 0 && result.code.empty()) result.failure = "NVRTC gave no code";
  return result;
}

}  // namespace flashcore
