#include "runtime/compile.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include "codegen/layout/register_split.h"
#include "dsl/error.h"
#include "runtime/cache/digest.h"
#include "runtime/environment.h"
#include "runtime/log.h"

namespace flashcore {
namespace {

// The slow path of a library function such as sinf takes some tens of bytes of stack. More is an
// array of the kernel that ptxas could not keep in registers.
constexpr int stack_allowance = 128;

// Of the messages C75xx, the one that is not about products.
constexpr std::string_view setmaxnreg_ignored = "(C7508)";

// What ptxas says where the operands of one product have no place: it cannot spill them.
constexpr std::string_view no_place_for_product = "(C7602)";

constexpr std::string_view smaller =
    "smaller tiles, more warps for the same rows, or fewer "
    "pipeline stages held in registers";

// From 12.9 on NVRTC has a cache of its own; a hit in it comes without the report of ptxas.
constexpr NvrtcVersion first_with_cache{12, 9};
constexpr NvrtcVersion first_with_fast_compile{12, 9};
/// In some kernels earlier releases give registers that hold a left operand for all iterations of a loop
/// to other values, without a message.
constexpr NvrtcVersion first_that_keeps_operands{13, 1};

// "sm_90a" is compute capability 90 with features of exactly that chip.
int capability_of(const std::string& architecture) {
  int capability = 0;
  const char* const end = architecture.data() + architecture.size();
  if (architecture.starts_with("sm_")) {
    const auto [rest, error] = std::from_chars(architecture.data() + 3, end, capability);
    const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
    if (error == std::errc() && (suffix.empty() || suffix == "a" || suffix == "f"))
      return capability;
  }
  throw CompileError(
      {.what = fmt::format("\"{}\" is not the name of an architecture", architecture),
       .why = "sm_ and a compute capability are expected, then an optional a or f",
       .fix = "for example sm_80, sm_90a or sm_120",
       .where = {}});
}

void require_support(const Nvrtc& nvrtc, const std::string& architecture) {
  const std::vector<int>& known = nvrtc.architectures();
  if (std::binary_search(known.begin(), known.end(), capability_of(architecture))) return;
  throw CompileError(
      {.what = fmt::format("NVRTC {} cannot compile for {}", nvrtc.version().text(), architecture),
       .why = fmt::format("{} knows sm_{}", nvrtc.files().library, fmt::join(known, ", sm_")),
       .fix = capability_of(architecture) > known.back()
                  ? "a newer compiler: pip install --upgrade nvidia-cuda-nvrtc"
                  : "one of these architectures, or another release of nvidia-cuda-nvrtc",
       .where = {}});
}

std::string file_name_of(const KernelSource& source) { return source.entry + ".cu"; }

// Writes the text into the directory the user named; the name holds a digest, so that two kernels
// of one name do not overwrite each other and one kernel is kept once.
void keep_source(const KernelSource& source, const std::string& architecture) {
  const auto directory = value_of(EnvironmentVariable::keep_source);
  if (!directory) return;
  const std::string text = source.text();
  const std::string path = fmt::format("{}/{}.{}.{}.cu", *directory, source.entry, architecture,
                                       digest_of(text).substr(0, 8));
  std::error_code error;
  std::filesystem::create_directories(*directory, error);
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (file.flush()) {
    log_message(LogLevel::info, "source kept in {}", path);
  } else {
    log_message(LogLevel::warn, "cannot write {}", path);
  }
}

// Keeps a text that the compiler refused in a new private file; empty when even that fails.
std::string keep_refused(const KernelSource& source) {
  std::string folder = system_variable("TMPDIR");
  if (folder.empty()) folder = "/tmp";
  std::string path = fmt::format("{}/flashcore_{}_XXXXXX.cu", folder, source.entry);
  const int file = mkstemps(path.data(), 3);
  if (file < 0) return "";
  close(file);
  std::ofstream stream(path, std::ios::binary);
  stream << source.text();
  return stream.flush() ? path : "";
}

[[noreturn]] void fail_to_compile(const KernelSource& source, const std::string& architecture,
                                  const Nvrtc::Result& result, const Nvrtc& nvrtc) {
  const std::string kept = keep_refused(source);
  // Who builds the first schedule that fits catches the error below and goes on with the next schedule.
  log_message(LogLevel::warn, "NVRTC refuses {} for {}, which is a bug of FlashCore: {}",
              source.name, architecture, kept.empty() ? result.failure : kept);
  throw CompileError(
      {.what = fmt::format("NVRTC {} refuses {} for {}", nvrtc.version().text(), source.name,
                           architecture),
       .why = fmt::format("{}\n{}", result.failure, result.log),
       .fix =
           fmt::format("the generated source is kept in {}; if the program and the schedule were "
                       "accepted, this is a bug of FlashCore and worth a report with that file",
                       kept.empty() ? "KernelSource::text()" : kept),
       .where = {}});
}

// A schedule that asks for more registers than there are is no bug.
void refuse_no_place(const KernelSource& source, const std::string& architecture,
                     const std::string& log) {
  const std::size_t at = log.find(no_place_for_product);
  if (at == std::string::npos) return;
  const std::size_t begin = log.rfind('\n', at) + 1;
  throw CompileError({.what = fmt::format("{} for {} has a product that does not fit in registers",
                                          source.name, architecture),
                      .why = log.substr(begin, log.find('\n', at) - begin),
                      .fix = source.min_blocks > 1
                                 ? fmt::format("{}, or fewer blocks a multiprocessor", smaller)
                                 : std::string(smaller),
                      .where = {}});
}

Nvrtc::Result run(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture,
                  Nvrtc::Output output, Effort effort = Effort::optimised) {
  require_support(nvrtc, architecture);
  require_right_code(source, nvrtc.version());
  keep_source(source, architecture);
  Nvrtc::Result result =
      nvrtc.compile(source.text(), file_name_of(source),
                    compile_options(architecture, nvrtc.version(), effort), output);
  if (!result.failure.empty()) {
    refuse_no_place(source, architecture, result.log);
    fail_to_compile(source, architecture, result, nvrtc);
  }
  if (!result.log.empty()) log_message(LogLevel::debug, "{}: {}", source.name, result.log);
  return result;
}

// The kernel is right and slow: what the schedule is for did not come about.
[[noreturn]] void refuse_lost_overlap(const std::string& kernel,
                                      const std::vector<std::string>& lines) {
  const bool products = std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find(setmaxnreg_ignored) == std::string::npos;
  });
  const std::string said = fmt::format("ptxas: {}", fmt::join(lines, "\n       "));
  if (products) {
    throw CompileError({.what = kernel + " would run its wgmma products one after the other",
                        .why = said +
                               "\n       where an instruction touches the registers of a product "
                               "in flight, ptxas waits for it",
                        .fix = "a schedule without overlap, or a smaller tile",
                        .where = {}});
  }
  throw CompileError(
      {.what = kernel + " would not pass registers from warp to warp",
       .why = said + "\n       every warp keeps its share of the registers, so large tiles "
                     "do not fit",
       .fix = "a register split that adds up to what the block has, with the blocks a "
              "multiprocessor given",
       .where = {}});
}

// Warps that hand on registers wait until there are as many as they share out.
void check_start(const KernelSource& source, const Resources& used, const std::string& kernel) {
  const bool hands_on = std::none_of(
      used.serialised.begin(), used.serialised.end(),
      [](const std::string& line) { return line.find(setmaxnreg_ignored) != std::string::npos; });
  const int all = used.registers * source.threads;
  if (!hands_on || all >= source.split_registers) return;
  throw CompileError(
      {.what = fmt::format("{} would wait for registers for ever", kernel),
       .why = fmt::format("its warpgroups share out {}, and ptxas lets {} threads begin with {}",
                          source.split_registers, source.threads, all),
       .fix = "producer = false, or other tiles",
       .where = {}});
}

}  // namespace

void require_right_code(const KernelSource& source, NvrtcVersion version) {
  if (!source.keeps_operands || version >= first_that_keeps_operands) return;
  throw CompileError(
      {.what = fmt::format("NVRTC {} may compile {} wrong", version.text(), source.name),
       .why = fmt::format("before {} it gives registers of left operands that a loop keeps for "
                          "asynchronous products to other values",
                          first_that_keeps_operands.text()),
       .fix = "keep_operands = false, or a newer compiler: pip install --upgrade nvidia-cuda-nvrtc",
       .where = {}});
}

bool compiles_fast(NvrtcVersion version) { return version >= first_with_fast_compile; }

std::vector<std::string> compile_options(const std::string& architecture, NvrtcVersion version,
                                         Effort effort) {
  std::vector<std::string> options{
      "--gpu-architecture=" + architecture,
      "--std=c++17",
      "-default-device",
      "--ptxas-options=-v",
  };
  if (version >= first_with_cache) options.emplace_back("--no-cache");
  // Not max, which is faster: NVRTC 13.5 compiles every later kernel of the process worse then.
  if (effort == Effort::fast) options.emplace_back("--Ofast-compile=mid");
  return options;
}

Cubin compile_cubin(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture,
                    Effort effort) {
  Nvrtc::Result result = run(nvrtc, source, architecture, Nvrtc::Output::cubin, effort);
  const std::optional<Resources> resources = read_compiler_report(result.log, source.entry);
  if (!resources) {
    result.failure = fmt::format(
        "the log has no report about {}, so its registers and spills are "
        "unknown",
        source.name);
    fail_to_compile(source, architecture, result, nvrtc);
  }
  return {.bytes = std::move(result.code), .resources = *resources};
}

std::string compile_ptx(const Nvrtc& nvrtc, const KernelSource& source,
                        const std::string& architecture) {
  return run(nvrtc, source, architecture, Nvrtc::Output::ptx).code;
}

void check_resources(const KernelSource& source, const Resources& used,
                     const std::string& architecture, Effort effort) {
  const std::string kernel = fmt::format("{} for {}", source.name, architecture);
  const std::string fit(smaller);
  // Probes make it the kernel that is looked into, at any speed.
  const bool has_to_be_quick = effort == Effort::optimised && !source.has_probes();
  if (!has_to_be_quick) return check_start(source, used, kernel);
  if (!used.serialised.empty()) refuse_lost_overlap(kernel, used.serialised);
  if (used.spill_store_bytes > 0 || used.spill_load_bytes > 0) {
    throw CompileError(
        {.what = fmt::format("{} spills registers", kernel),
         .why = fmt::format(
             "{} bytes are stored and {} loaded a thread, although ptxas used {} of the "
             "{} registers that {} threads and {} block(s) a multiprocessor allow",
             used.spill_store_bytes, used.spill_load_bytes, used.registers,
             registers_at_start(source.threads, source.min_blocks), source.threads,
             source.min_blocks),
         .fix = source.min_blocks > 1 ? fit + ", or fewer blocks a multiprocessor" : fit,
         .where = {}});
  }
  if (used.stack_bytes > stack_allowance) {
    throw CompileError(
        {.what = fmt::format("{} keeps an array in local memory", kernel),
         .why = fmt::format("its stack frame has {} bytes a thread, {} are tolerated",
                            used.stack_bytes, stack_allowance),
         .fix = fit,
         .where = {}});
  }
  check_start(source, used, kernel);
}

}  // namespace flashcore
