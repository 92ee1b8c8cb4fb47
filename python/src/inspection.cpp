// What the command line shows: the files of the cache, and what this machine compiles and runs
// with.
#include <chrono>
#include <string>

#include <pybind11/stl.h>

#include "dsl/error.h"
#include "python/src/module.h"
#include "runtime/cache/directory.h"
#include "runtime/cache/settings.h"
#include "runtime/cache/toolchain.h"
#include "runtime/compile_mode.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/driver.h"
#include "runtime/emulator/host_toolchain.h"
#include "runtime/environment.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

double seconds_of(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// A directory that passes the cache's policy, or CacheError with the test that it fails.
CacheDirectory open_directory(const std::string& path) {
  std::string why;
  std::optional<CacheDirectory> directory = CacheDirectory::open(path, why);
  if (directory) return std::move(*directory);
  throw CacheError({.what = path.empty() ? "no cache directory" : "the cache directory " + path,
                    .why = path.empty() ? "there is no home directory to have it in" : why,
                    .fix = "set FLASHCORE_CACHE_DIR to a directory that only you can write to",
                    .where = {}});
}

std::vector<std::tuple<std::string, std::uint64_t, double>> files_of(const std::string& path) {
  std::vector<std::tuple<std::string, std::uint64_t, double>> rows;
  for (const CacheDirectory::File& file : open_directory(path).files())
    rows.emplace_back(file.name, file.bytes, seconds_of(file.last_use));
  return rows;
}

std::optional<py::bytes> read_file_of(const std::string& path, const std::string& name) {
  const std::optional<std::string> content = open_directory(path).read(name);
  return content ? std::optional(py::bytes(*content)) : std::nullopt;
}

py::dict compiler_state() {
  std::shared_ptr<const InstalledNvrtc> installed;
  {
    const py::gil_scoped_release release;
    installed = InstalledNvrtc::shared();
    if (installed->is_present()) (void)installed->nvrtc();
  }
  py::dict state;
  state["present"] = installed->is_present();
  state["version"] = installed->toolchain().version.text();
  state["digest"] = installed->toolchain().digest;
  state["library"] = installed->files().library;
  if (installed->is_present()) state["architectures"] = installed->nvrtc().architectures();
  return state;
}

py::dict driver_state() {
  const Driver& driver = Driver::get();
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "the number of GPUs");
  py::list devices;
  for (int i = 0; i < count; ++i) {
    const DeviceInfo info = device_info(driver, i);
    py::dict d;
    d["name"] = info.name;
    d["architecture"] = info.architecture();
    d["multiprocessors"] = info.multiprocessors;
    devices.append(std::move(d));
  }
  py::dict state;
  state["cuda"] =
      std::to_string(driver.version() / 1000) + "." + std::to_string(driver.version() % 1000 / 10);
  state["devices"] = std::move(devices);
  return state;
}

}  // namespace

void bind_inspection(py::module_& m) {
  m.def("cache_files", &files_of, py::arg("path"),
        "Name, bytes and time of the last use of every file; CacheError.");
  m.def("read_cache_file", &read_file_of, py::arg("path"), py::arg("name"),
        "None where there is none, or none that can be trusted.");
  m.def(
      "remove_cache_file",
      [](const std::string& path, const std::string& name) { open_directory(path).remove(name); },
      py::arg("path"), py::arg("name"));
  m.def(
      "cache_settings",
      [] {
        const CacheSettings settings = CacheSettings::from_environment();
        return std::make_tuple(settings.directory, settings.max_bytes);
      },
      "The directory of kernels, empty where none is used, and how large it may get.");
  m.def(
      "compile_mode", [] { return std::string(name_of(compile_mode())); },
      "What FLASHCORE_COMPILE says; CacheError for a word it does not know.");
  m.def("compiler_state", &compiler_state, "Of NVRTC; CompileError where there is none.");
  m.def("driver_state", &driver_state, "Of the driver and its GPUs; DeviceError without.");
  m.def(
      "host_compiler", [] { return find_host_compiler(""); },
      "The path of the C++ compiler; CompileError where there is none.");
}

}  // namespace flashcore::python
