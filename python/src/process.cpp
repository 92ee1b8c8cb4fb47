// What belongs to the process: the compiler and GPU it finds, its log, its environment.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "python/src/arrays.h"
#include "python/src/emulation_watch.h"
#include "python/src/gpu_model.h"
#include "python/src/module.h"
#include "runtime/background.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/toolchain.h"
#include "runtime/compile_mode.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nvrtc_search.h"
#include "runtime/environment.h"
#include "runtime/events.h"
#include "runtime/log.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

/// A function of Python's that is called from any thread, also from those that work without the
/// GIL.
template <class... Arguments>
std::function<void(Arguments...)> callable_anywhere(std::function<void(Arguments...)> function) {
  auto shared = std::shared_ptr<std::function<void(Arguments...)>>(
      new auto(std::move(function)), [](auto* held) {
        const py::gil_scoped_acquire gil;
        delete held;
      });
  return [shared](Arguments... arguments) {
    const py::gil_scoped_acquire gil;
    (*shared)(std::forward<Arguments>(arguments)...);
  };
}

void set_log_function(std::optional<std::function<void(std::string, std::string)>> hook) {
  if (!hook) {
    set_log_hook({});
    return;
  }
  set_log_hook([call = callable_anywhere(std::move(*hook))](LogLevel level, std::string_view text) {
    call(std::string(name_of(level)), std::string(text));
  });
}

using EventFunction = std::function<void(std::string, std::string, double, std::uint64_t)>;

void set_event_function(std::optional<EventFunction> hook) {
  if (!hook) {
    set_event_hook({});
    return;
  }
  set_event_hook([call = callable_anywhere(std::move(*hook))](const KernelEvent& event) {
    call(std::string(name_of(event.kind)), event.kernel, event.ms, event.bytes);
  });
}

/// The file of tuned schedules; none where the user wants none, or has no home.
std::optional<std::string> schedules_file() {
  return file_of(EnvironmentVariable::schedules, "schedules.json");
}

}  // namespace

void bind_process(py::module_& m) {
  m.def(
      "set_compile_mode",
      [](const std::optional<std::string>& mode) {
        set_compile_mode(mode ? std::optional(compile_mode_named(*mode)) : std::nullopt);
      },
      py::arg("mode").none(true));
  m.def("finish_background", &finish_background, py::call_guard<py::gil_scoped_release>(),
        "At the end of the interpreter: compiles that nobody waits for end now.");
  m.def("cache_stats", [] {
    const CacheStatistics now = KernelCache::shared().statistics();
    py::dict stats;
    stats["memory"] = now.memory;
    stats["bundle"] = now.bundle;
    stats["directory"] = now.directory;
    stats["folder"] = now.folder;
    stats["remote"] = now.remote;
    stats["compiled"] = now.compiled;
    stats["failed"] = now.failed;
    stats["bytes_loaded"] = now.bytes_loaded;
    stats["bytes_compiled"] = now.bytes_compiled;
    stats["load_ms"] = now.load_ms;
    stats["compile_ms"] = now.compile_ms;
    return stats;
  });
  m.def("set_nvrtc_hint", &set_nvrtc_hint, py::arg("path"));
  m.def("gpu_target", &gpu_target, py::call_guard<py::gil_scoped_release>(),
        "The target of the current GPU, or None without one.");
  m.def("stream_handle", &stream_handle, py::arg("stream"),
        "Of a stream of any framework, or a handle; DeviceError for what is neither.");
  m.def(
      "nvrtc_version", [] { return InstalledNvrtc::shared()->nvrtc().version().text(); },
      py::call_guard<py::gil_scoped_release>(),
      "Of the compiler in use; CompileError without one.");
  m.def("schedules_file", &schedules_file,
        "Where schedules that autotune found are kept, or None.");
  m.def(
      "cost_model_file", [] { return file_of(EnvironmentVariable::cost_model, "cost_model.json"); },
      "Where coefficients that were measured for GPUs are kept, or None.");
  m.def("cache_directory_path", &cache_directory_path,
        "Of compiled kernels; empty where there is no home.");
  m.def(
      "schedules_variable", [] { return value_of(EnvironmentVariable::schedules); },
      "FLASHCORE_SCHEDULES, or None where it is unset.");
  m.def("set_log_hook", &set_log_function, py::arg("hook").none(true));
  m.def("set_event_hook", &set_event_function, py::arg("hook").none(true));
  m.def("set_emulation_observer", &set_emulation_observer, py::arg("make"));
  m.def("environment", [] {
    std::vector<std::tuple<std::string, std::string, std::string>> rows;
    for (const EnvironmentEntry& entry : environment_table()) {
      rows.emplace_back(entry.name, entry.fallback, entry.meaning);
    }
    return rows;
  });
}

}  // namespace flashcore::python
