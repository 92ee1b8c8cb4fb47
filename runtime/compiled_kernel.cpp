#include <chrono>
#include <optional>

#include <fmt/ranges.h>

#include "dsl/error.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/key.h"
#include "runtime/cache/toolchain.h"
#include "runtime/compile_mode.h"
#include "runtime/environment.h"
#include "runtime/kernel.h"
#include "runtime/log.h"
#include "runtime/profiler_range.h"
#include "runtime/request.h"

namespace flashcore {
namespace {

// Every place that was looked into, and why it did not help.
std::vector<std::string> reasons_of_miss(const CacheKey& key) {
  const KernelCache& cache = KernelCache::shared();
  std::vector<std::string> reasons;
  const std::string_view asked = std::string_view(key.name).substr(0, key.asked_name);
  for (const std::shared_ptr<const Bundle>& bundle : cache.bundles())
    reasons.push_back(bundle->find(asked).empty()
                          ? fmt::format("the bundle {} has no such kernel", bundle->path())
                          : fmt::format("it is damaged in the bundle {}", bundle->path()));
  for (const std::string& refused : cache.refused_bundles()) reasons.push_back(refused);
  if (const CacheDirectory* const directory = cache.directory()) {
    bool damaged = false;
    for (const CacheDirectory::File& file : directory->files())
      damaged |= file.name.starts_with(asked) && file.name.ends_with(".kernel");
    reasons.push_back(damaged ? fmt::format("it is damaged in {}", directory->path())
                              : fmt::format("{} has no {}*.kernel", directory->path(), asked));
  } else {
    reasons.push_back(cache.entries().why_no_directory());
  }
  for (std::string& reason : cache.folders().reasons_of_miss(key)) reasons.push_back(reason);
  if (const auto remote = cache.remote()) reasons.push_back(remote->reason_of_miss(key));
  return reasons;
}

[[noreturn]] void refuse_to_compile(const CacheKey& key, const std::string& architecture) {
  throw CacheMissError(
      {.what = fmt::format("{} is not in the cache and compiling is forbidden", key.kernel),
       .why = fmt::format("{}", fmt::join(reasons_of_miss(key), "; ")),
       .fix = fmt::format(
           "where compiling is allowed, `flashcore compile spec.json --target {} --lengths "
           "1..8192`, say, or flashcore.precompile, and bring the cache directory along; or a "
           "bundle; by this version of FlashCore and any NVRTC",
           architecture),
       .where = {}});
}

}  // namespace

CompiledKernel::CompiledKernel(KernelSource source, std::string architecture,
                               std::shared_ptr<const Cubin> cubin, Effort effort)
    : source_(std::make_shared<const KernelSource>(std::move(source))),
      architecture_(std::move(architecture)),
      cubin_(std::move(cubin)),
      resources_(cubin_->resources),
      effort_(effort) {
  check_resources(*source_, resources_, architecture_, effort);
  resources_.dynamic_shared_bytes = source_->shared_bytes;
}

namespace {

/// What the cache is asked, by which compiler, and how what it lacks is made.
struct Question {
  Question(const KernelSource& of, const std::string& for_architecture, Effort with)
      : source(of), architecture(for_architecture), effort(with), mode(compile_mode()) {
    if (mode != CompileMode::forbid) {
      try {
        installed = InstalledNvrtc::shared();
      } catch (const CompileError& error) {
        missing = error;
      }
    }
    const Toolchain toolchain = installed != nullptr ? installed->toolchain() : Toolchain{};
    key = make_key(source, architecture, compile_options(architecture, toolchain.version, effort),
                   toolchain);
  }

  /// What cannot be compiled here may come from any compiler.
  [[nodiscard]] Compiler compiler() const {
    return installed != nullptr && installed->is_present() ? Compiler::this_one : Compiler::any;
  }

  Cubin compile() {
    if (missing) throw CompileError(*missing);
    if (installed == nullptr) refuse_to_compile(key, architecture);
    if (mode == CompileMode::warn)
      log_message(LogLevel::warn, "{} is not in the cache and is compiled", key.kernel);
    const ProfilerRange range("compile a kernel");
    const auto start = std::chrono::steady_clock::now();
    Cubin cubin = compile_cubin(installed->nvrtc(), source, architecture, effort);
    compile_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    cubin.made_by = key.preimage.substr(key.asked_preimage);
    log_message(LogLevel::info, "compiled {}{} in {:.0f} ms: {} registers, {} bytes", key.kernel,
                effort == Effort::fast ? " fast" : "", compile_ms, cubin.resources.registers,
                cubin.bytes.size());
    return cubin;
  }

  const KernelSource& source;
  const std::string& architecture;
  const Effort effort;
  const CompileMode mode;
  std::shared_ptr<const InstalledNvrtc> installed;
  std::optional<CompileError> missing;
  CacheKey key;
  double compile_ms = 0;
};

}  // namespace

std::shared_ptr<const CompiledKernel> CompiledKernel::build(KernelSource source,
                                                            std::string architecture) {
  Question question(source, architecture, Effort::optimised);
  const KernelCache::Outcome outcome = KernelCache::shared().get(
      question.key, [&] { return question.compile(); }, question.compiler());
  const double compile_ms = question.compile_ms;
  std::shared_ptr<CompiledKernel> kernel(
      new CompiledKernel(std::move(source), std::move(architecture), outcome.cubin));
  kernel->from_cache_ = outcome.from_cache;
  kernel->compile_ms_ = compile_ms;
  return kernel;
}

std::shared_ptr<const CompiledKernel> CompiledKernel::build_fast(KernelSource source,
                                                                 std::string architecture) {
  Question question(source, architecture, Effort::fast);
  if (question.installed != nullptr && !compiles_fast(question.installed->toolchain().version))
    throw CompileError(
        {.what = fmt::format("{} is not compiled fast", question.key.kernel),
         .why = fmt::format("NVRTC {} cannot", question.installed->toolchain().version.text()),
         .fix = "NVRTC 12.9 or newer",
         .where = {}});
  const KernelCache::Outcome outcome =
      KernelCache::shared().get_here(question.key, [&] { return question.compile(); });
  const double compile_ms = question.compile_ms;
  std::shared_ptr<CompiledKernel> kernel(
      new CompiledKernel(std::move(source), std::move(architecture), outcome.cubin, Effort::fast));
  kernel->from_cache_ = outcome.from_cache;
  kernel->compile_ms_ = compile_ms;
  return kernel;
}

std::shared_ptr<const CompiledKernel> CompiledKernel::find(const KernelSource& source,
                                                           const std::string& architecture) {
  const Question question(source, architecture, Effort::optimised);
  std::shared_ptr<const Cubin> cubin =
      KernelCache::shared().find(question.key, question.compiler());
  if (cubin == nullptr) return nullptr;
  std::shared_ptr<CompiledKernel> kernel(
      new CompiledKernel(source, architecture, std::move(cubin)));
  kernel->from_cache_ = true;
  return kernel;
}

std::shared_ptr<const CompiledKernel> CompiledKernel::find(const Program& program,
                                                           const Schedule& schedule,
                                                           const Target& target) {
  const KernelCache& cache = KernelCache::shared();
  if (cache.bundles().empty()) return nullptr;
  std::optional<StoredKernel> stored =
      cache.find_requested(request_of(program, schedule, target), target.name);
  if (!stored) return nullptr;
  std::shared_ptr<CompiledKernel> kernel(
      new CompiledKernel(std::move(stored->source), std::move(stored->target),
                         std::make_shared<const Cubin>(std::move(stored->cubin))));
  kernel->from_cache_ = true;
  return kernel;
}

std::shared_ptr<const CompiledKernel> CompiledKernel::from_cubin(KernelSource source,
                                                                 std::string architecture,
                                                                 Cubin cubin) {
  return std::shared_ptr<const CompiledKernel>(new CompiledKernel(
      std::move(source), std::move(architecture), std::make_shared<const Cubin>(std::move(cubin))));
}

std::string CompiledKernel::entry() const {
  if (cubin_->made_by.empty())
    throw CompileError({.what = fmt::format("the entry of {} for {}", source_->name, architecture_),
                        .why = "nothing is known of the compiler that made its code",
                        .fix = "CompiledKernel::build",
                        .where = {}});
  const CacheKey asked = make_key(*source_, architecture_, {}, {});
  const std::string preimage = asked.preimage.substr(0, asked.asked_preimage) + cubin_->made_by;
  return encode_entry(make_key(fields_of(preimage).value(), asked.kernel, kernel_fields_asked),
                      *cubin_);
}

std::string CompiledKernel::ptx() const {
  return compile_ptx(InstalledNvrtc::shared()->nvrtc(), *source_, architecture_);
}

}  // namespace flashcore
