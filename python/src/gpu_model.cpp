#include "python/src/gpu_model.h"

#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "dsl/error.h"
#include "python/src/arrays.h"
#include "runtime/cache/settings.h"
#include "runtime/cuda/device.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"

namespace flashcore::python {
namespace {

std::mutex mutex;
std::map<std::string, std::optional<CostModel>> models;  ///< by target and device

/// Empty where there is no file, or none that can be used.
std::string user_table() {
  const auto file = file_of(EnvironmentVariable::cost_model, "cost_model.json");
  if (!file) return "";
  std::ifstream in(*file);
  if (!in) return "";
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<CostModel> model_with(const Target& target, const GpuFacts& gpu,
                                    const std::string& table) {
  try {
    return CostModel::find(target.name, gpu, table);
  } catch (const ScheduleError& error) {
    log_message(LogLevel::warn, "left aside, FLASHCORE_COST_MODEL: {}", error.complaint().why);
    return CostModel::find(target.name, gpu);
  }
}

}  // namespace

std::optional<std::string> file_of(EnvironmentVariable variable, const char* name) {
  if (const auto named = value_of(variable)) return *named == "off" ? std::nullopt : named;
  const std::string directory = cache_directory_path();
  return directory.empty() ? std::nullopt : std::optional(directory + "/" + name);
}

std::optional<std::string> gpu_target() {
  if (!gpu_is_available()) return std::nullopt;
  const Driver& driver = Driver::get();
  const DeviceInfo device = device_info(driver, current_device(driver));
  return std::string(target_for_device(device.major, device.minor).name);
}

std::optional<CostModel> cost_model_of(const Target& target) {
  const bool here = gpu_target() == target.name;
  const int device = here ? current_device(Driver::get()) : -1;
  const NoFork whole;
  const std::lock_guard lock(mutex);
  const std::string key = std::string(target.name) + "/" + std::to_string(device);
  if (const auto known = models.find(key); known != models.end()) return known->second;
  GpuFacts gpu;
  if (here) {
    const DeviceInfo info = device_info(Driver::get(), device);
    gpu = {.name = info.name, .multiprocessors = info.multiprocessors, .l2_bytes = info.l2_bytes};
  }
  return models[key] = model_with(target, gpu, user_table());
}

ScheduleChooser chooser_of(const AttentionSpec& spec, const Target& target,
                           std::string_view winners) {
  return {spec, target, winners, cost_model_of(target)};
}

int multiprocessors_for_tables(const Target& target) {
  return ScheduleChooser::multiprocessors(cost_model_of(target));
}

void forget_cost_models() {
  const NoFork whole;
  const std::lock_guard lock(mutex);
  models.clear();
}

}  // namespace flashcore::python
