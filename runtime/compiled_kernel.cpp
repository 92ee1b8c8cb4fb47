#include <chrono>

#include "dsl/error.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/key.h"
#include "runtime/cache/toolchain.h"
#include "runtime/environment.h"
#include "runtime/kernel.h"
#include "runtime/log.h"
#include "runtime/request.h"

namespace flashcore {
namespace {

[[noreturn]] void refuse_to_compile(const CacheKey& key) {
  const CacheDirectory* directory = KernelCache::shared().directory();
  throw CompileError(
      {.what = fmt::format("{} is not in the cache and compiling is forbidden", key.kernel),
       .why = fmt::format("{}=forbid, and {} has no {}", name_of(EnvironmentVariable::compile),
                          directory != nullptr ? directory->path() : "memory", key.name),
       .fix = "flashcore.precompile(spec, targets, lengths=(1, 8192)), say, where compiling is "
              "allowed, by this version of FlashCore and any NVRTC; then bring the cache directory "
              "along",
       .where = {}});
}

}  // namespace

CompiledKernel::CompiledKernel(KernelSource source, std::string architecture,
                               std::shared_ptr<const Cubin> cubin)
    : source_(std::make_shared<const KernelSource>(std::move(source))),
      architecture_(std::move(architecture)),
      cubin_(std::move(cubin)),
      resources_(cubin_->resources) {
  check_budget(*source_, resources_, architecture_);
  resources_.dynamic_shared_bytes = source_->shared_bytes;
}

std::shared_ptr<const CompiledKernel> CompiledKernel::build(KernelSource source,
                                                            std::string architecture) {
  const std::shared_ptr<const InstalledNvrtc> installed = InstalledNvrtc::shared();
  const Toolchain& toolchain = installed->toolchain();
  const CacheKey key =
      make_key(source, architecture, compile_options(architecture, toolchain.version), toolchain);
  double compile_ms = 0;
  const bool forbidden = choice_of(EnvironmentVariable::compile) == "forbid";
  const auto compile = [&] {
    if (forbidden) refuse_to_compile(key);
    const auto start = std::chrono::steady_clock::now();
    Cubin cubin = compile_cubin(installed->nvrtc(), source, architecture);
    compile_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    cubin.made_by = key.preimage.substr(key.asked_preimage);
    log_message(LogLevel::info, "compiled {} in {:.0f} ms: {} registers, {} bytes", key.kernel,
                compile_ms, cubin.resources.registers, cubin.bytes.size());
    return cubin;
  };
  // What cannot be compiled here may come from any compiler.
  const bool can_compile = !forbidden && installed->is_present();
  const KernelCache::Outcome outcome =
      KernelCache::shared().get(key, compile, can_compile ? Compiler::this_one : Compiler::any);
  std::shared_ptr<CompiledKernel> kernel(
      new CompiledKernel(std::move(source), std::move(architecture), outcome.cubin));
  kernel->from_cache_ = outcome.from_cache;
  kernel->compile_ms_ = compile_ms;
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
