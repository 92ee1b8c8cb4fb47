// What the command line shows: the files of the cache, and what this machine compiles and runs
// with.
#include <chrono>
#include <string>

#include <pybind11/stl.h>

#include "dsl/error.h"
#include "python/src/module.h"
#include "runtime/cache/directory.h"
#include "runtime/cache/settings.h"
#include "runtime/cache/stored_kernel.h"
#include "runtime/cache/toolchain.h"
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

py::dict resources_of(const Resources& resources) {
  py::dict d;
  d["registers"] = resources.registers;
  d["stack_bytes"] = resources.stack_bytes;
  d["spill_store_bytes"] = resources.spill_store_bytes;
  d["spill_load_bytes"] = resources.spill_load_bytes;
  d["static_shared_bytes"] = resources.static_shared_bytes;
  d["barriers"] = resources.barriers;
  return d;
}

py::dict entry_of(const py::bytes& file, const std::string& path) {
  const StoredKernel kernel = read_stored_kernel(std::string_view(file), path);
  const KernelSource& source = kernel.source;
  py::list tensors;
  for (const TensorArgument& tensor : source.tensors) {
    py::dict d;
    d["name"] = tensor.name;
    d["dtype"] = std::string(name_of(tensor.dtype));
    d["output"] = tensor.output;
    py::list dims;
    for (const Extent& extent : tensor.dims) {
      if (extent.is_static()) {
        dims.append(extent.value);
      } else {
        dims.append(extent.plus == 0 ? extent.name
                                     : extent.name + " + " + std::to_string(extent.plus));
      }
    }
    d["dims"] = std::move(dims);
    d["alignment"] = tensor.alignment;
    tensors.append(std::move(d));
  }
  py::list scalars;
  for (const ScalarArgument& scalar : source.scalars) {
    py::dict d;
    d["name"] = scalar.name;
    d["dtype"] = std::string(name_of(scalar.dtype));
    scalars.append(std::move(d));
  }
  py::list grid;
  for (const GridAxis& axis : source.grid) {
    py::dict d;
    d["axis"] = axis.name;
    d["tile"] = axis.tile;
    grid.append(std::move(d));
  }
  py::dict launch;
  launch["threads"] = source.threads;
  launch["dynamic_shared_bytes"] = source.shared_bytes;
  launch["cluster"] = source.cluster;
  launch["persistent"] = source.persistent;
  launch["flat_grid"] = source.flat_grid;
  launch["min_blocks"] = source.min_blocks;
  launch["parameter_bytes"] = source.parameter_bytes;
  launch["tensor_maps"] = source.tensor_maps.size();
  launch["grid"] = std::move(grid);
  launch["tensors"] = std::move(tensors);
  launch["scalars"] = std::move(scalars);

  py::dict entry;
  entry["name"] = kernel.name;
  entry["target"] = kernel.target;
  entry["entry"] = source.entry;
  entry["key"] = kernel.key;
  entry["compiler"] = kernel.compiler;
  entry["compiler_digest"] = kernel.compiler_digest;
  entry["options"] = kernel.options;
  entry["resources"] = resources_of(kernel.cubin.resources);
  entry["launch"] = std::move(launch);
  entry["source"] = source.body;
  entry["code"] = py::bytes(kernel.cubin.bytes);
  return entry;
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
      "compile_mode", [] { return choice_of(EnvironmentVariable::compile); },
      "What FLASHCORE_COMPILE says; CacheError for a word it does not know.");
  m.def("read_entry", &entry_of, py::arg("file"), py::arg("path"),
        "All that a kernel's file says; CompileError where it is none, which calls it `path`.");
  m.def("compiler_state", &compiler_state, "Of NVRTC; CompileError where there is none.");
  m.def("driver_state", &driver_state, "Of the driver and its GPUs; DeviceError without.");
  m.def(
      "host_compiler", [] { return find_host_compiler(""); },
      "The path of the C++ compiler; CompileError where there is none.");
}

}  // namespace flashcore::python
