// The cost model of the GPU that kernels are made for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dsl/target.h"
#include "runtime/environment.h"
#include "templates/choice/cost_model.h"
#include "templates/schedule_chooser.h"

namespace flashcore::python {

/// A file of the user that a variable names, or that lies under this name in the directory of
/// compiled kernels; none where the variable is "off", or the user has no home.
std::optional<std::string> file_of(EnvironmentVariable variable, const char* name);

/// The target of the current GPU, or none without one.
std::optional<std::string> gpu_target();

/// With the facts of the current GPU if that is of this target, and the coefficients that the user
/// has measured. None where the target has no model: see CostModel::find.
std::optional<CostModel> cost_model_of(const Target& target);

/// With that model.
ScheduleChooser chooser_of(const AttentionSpec& spec, const Target& target,
                           std::string_view winners = {});

/// By which tables of winners tell few blocks from many.
int multiprocessors_for_tables(const Target& target);

/// The file of coefficients was written: the next model is made with it.
void forget_cost_models();

}  // namespace flashcore::python
