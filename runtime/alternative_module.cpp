#include "runtime/alternative_module.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dsl/error.h"
#include "dsl/inline_list.h"
#include "runtime/launch_errors.h"

namespace flashcore {
namespace {

/// The places of a module's arguments among those of a program.
template <class Wanted, class Given>
std::vector<std::size_t> places_of(const std::string& module, const std::string& program,
                                   const Wanted& wanted, const Given& given) {
  std::vector<std::size_t> places;
  for (const auto& argument : wanted) {
    const auto found =
        std::ranges::find_if(given, [&](const auto& one) { return one.name == argument.name; });
    if (found == given.end())
      throw SpecError(
          {.what = fmt::format("the module {} in place of the program {}", module, program),
           .why = fmt::format("it takes {}, which the program does not", argument.name),
           .fix = "a module whose arguments have the names of the program's",
           .where = {}});
    places.push_back(static_cast<std::size_t>(found - given.begin()));
  }
  return places;
}

}  // namespace

AlternativeModule::AlternativeModule(LaunchableModule module, const Program& program)
    : module_(std::move(module)) {
  const KernelSource& own = module_.plan().signature();
  tensors_ = places_of(own.name, program.name(), own.tensors, program.function().tensors);
  scalars_ = places_of(own.name, program.name(), own.scalars, program.function().parameters);
}

void AlternativeModule::launch(std::span<const TensorView> tensors,
                               std::span<const ScalarValue> scalars, CudaStream stream,
                               Workspace& workspace) const {
  InlineList<TensorView, ModulePlan::max_tensors> views;
  for (const std::size_t place : tensors_) views.push(tensors[place]);
  InlineList<ScalarValue, ModulePlan::max_scalars> values;
  for (const std::size_t place : scalars_) values.push(scalars[place]);
  try {
    module_.launch(views.span(), values.span(), stream, workspace);
  } catch (const LayoutError& error) {
    const auto own = static_cast<std::size_t>(error.tensor());
    throw LayoutError(error.complaint(), static_cast<int>(tensors_[own]));
  }
}

}  // namespace flashcore
