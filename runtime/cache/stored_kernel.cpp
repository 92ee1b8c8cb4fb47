#include "runtime/cache/stored_kernel.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/key.h"
#include "runtime/cache/launch_data.h"

namespace flashcore {
namespace {

[[noreturn]] void refuse(const std::string& path, std::string why) {
  throw CompileError({.what = fmt::format("{} is no kernel that can be loaded", path),
                      .why = std::move(why),
                      .fix = "make it anew, with this version of FlashCore",
                      .where = {}});
}

// ELF's machine number of CUDA, at its place in the header of every ELF file.
bool is_cuda_elf(std::string_view code) {
  constexpr std::size_t machine = 18;
  return code.size() > 64 &&
         code.starts_with(
             "\x7f"
             "ELF") &&
         code[machine] == '\xbe' && code[machine + 1] == '\0';
}

// The number of the architecture, 90 for sm_90a, as its flags say it; nothing where they are of a
// form that is not known. CUDA 13 moved it.
std::optional<unsigned> architecture_of(std::string_view code) {
  constexpr std::size_t abi_version = 8, flags = 48;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(code[at]); };
  if (byte(abi_version) == 7) return byte(flags);
  if (byte(abi_version) == 8) return byte(flags + 1);
  return std::nullopt;
}

// 90 of "sm_90a"; 0 of anything else.
unsigned number_of(std::string_view target) {
  constexpr std::string_view prefix = "sm_";
  unsigned number = 0;
  if (target.starts_with(prefix))
    std::from_chars(target.data() + prefix.size(), target.data() + target.size(), number);
  return number;
}

}  // namespace

StoredKernel read_stored_kernel(std::string_view file, const std::string& path) {
  const std::optional<EntryParts> parts = read_entry(file);
  if (!parts) refuse(path, "it is damaged, cut short, or an entry of another version of FlashCore");
  const std::optional<std::vector<std::string_view>> fields = fields_of(parts->preimage);
  // schema, target, entry point, text, launch data, compiler, its digest, number of options
  constexpr std::size_t before_options = 8;
  if (!fields || fields->size() < before_options) refuse(path, "its key has no fields to read");
  const auto& f = *fields;

  StoredKernel kernel;
  const CacheKey key = make_key(f, "", kernel_fields_asked);
  kernel.key = key.name;
  if (kernel.key != parts->key) refuse(path, "its name is not that of its key");
  kernel.target = f[1];
  std::optional<KernelSource> source = read_launch_data(f[4]);
  if (!source) refuse(path, "it does not say how to launch the kernel");
  kernel.source = std::move(*source);
  kernel.source.entry = f[2];
  kernel.source.body = f[3];
  const std::string of_target = fmt::format(" for {}", kernel.target);
  if (!parts->kernel.ends_with(of_target))
    refuse(path,
           fmt::format("it calls itself {}, and its key is of {}", parts->kernel, kernel.target));
  kernel.name = parts->kernel.substr(0, parts->kernel.size() - of_target.size());
  kernel.source.name = kernel.name;
  kernel.compiler = f[5];
  kernel.compiler_digest = f[6];
  kernel.options.assign(f.begin() + before_options, f.end());
  if (f[7] != std::to_string(kernel.options.size())) refuse(path, "its key lacks options");
  kernel.cubin = {.bytes = std::string(parts->code),
                  .resources = parts->resources,
                  .made_by = std::string(parts->preimage.substr(key.asked_preimage))};
  if (!is_cuda_elf(kernel.cubin.bytes)) refuse(path, "its code is not a GPU's");
  if (const auto number = architecture_of(kernel.cubin.bytes);
      number && *number != number_of(kernel.target))
    refuse(path,
           fmt::format("its code is for sm_{}, and its key is of {}", *number, kernel.target));
  return kernel;
}

}  // namespace flashcore
