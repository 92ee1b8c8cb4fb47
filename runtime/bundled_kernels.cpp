#include "runtime/bundled_kernels.h"

#include <utility>

#include <fmt/format.h>

#include "dsl/error.h"
#include "dsl/json.h"
#include "runtime/cache/stored_kernel.h"
#include "runtime/flat_grid.h"
#include "runtime/request.h"
#include "runtime/tiered_kernel.h"

namespace flashcore {

std::shared_ptr<const CompiledKernel> read_bundled_kernel(const Bundle& bundle,
                                                          const Program& program,
                                                          const Schedule& schedule,
                                                          const Target& target) {
  const BundledKernel* const found = bundle.find_requested(request_of(program, schedule, target));
  if (found == nullptr)
    throw CacheMissError(
        {.what = fmt::format("{} for {} in {}", program.name(), target.name, bundle.path()),
         .why = fmt::format("the bundle has none under the schedule {}", to_json(schedule)),
         .fix =
             "a bundle for this spec, this target and these lengths, by this version of FlashCore",
         .where = {}});
  StoredKernel stored = read_stored_kernel(bundle.read(*found), bundle.path());
  if (stored.key != found->key || stored.target != target.name)
    throw CacheError(
        {.what = fmt::format("the kernel {} of {}", found->key, bundle.path()),
         .why = fmt::format("its entry is that of {} for {}", stored.key, stored.target),
         .fix = "the bundle, made anew",
         .where = {}});
  return std::move(stored).compiled();
}

Dispatcher::Builds builds_from_bundle(std::shared_ptr<const Bundle> bundle, const Target& target) {
  return [bundle = std::move(bundle), &target](const Program& given) -> Dispatcher::Build {
    const auto read = [bundle, program = std::make_shared<const Program>(given),
                       &target](const Schedule& schedule) -> Dispatcher::Kernel {
      return std::make_shared<TieredKernel>(
          read_bundled_kernel(*bundle, *program, schedule, target));
    };
    return [read](const Schedule& schedule, std::span<const Schedule>) -> Dispatcher::Kernel {
      Schedule flat = schedule;
      flat.flat_grid = true;
      return std::make_shared<AnyGrid>(read(schedule), [read, flat] { return read(flat); });
    };
  };
}

}  // namespace flashcore
