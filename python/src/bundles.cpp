// Bundles, and what the file of a kernel says.
#include <pybind11/stl.h>

#include "python/src/module.h"
#include "runtime/bundle/bundle.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/launch_data.h"
#include "runtime/cache/stored_kernel.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

/// pybind11 has no holders of constant objects.
struct OpenBundle {
  std::shared_ptr<const Bundle> bundle;
};

const BundledKernel& kernel_of(const OpenBundle& self, const std::string& key) {
  for (const BundledKernel* kernel : self.bundle->find(key))
    if (kernel->key == key) return *kernel;
  throw py::key_error(key);
}

py::dict described(const StoredKernel& kernel) {
  const Resources& used = kernel.cubin.resources;
  py::dict facts;
  facts["name"] = kernel.name;
  facts["key"] = kernel.key;
  facts["target"] = kernel.target;
  facts["entry"] = kernel.source.entry;
  facts["compiler"] = "NVRTC " + kernel.compiler;
  facts["compiler_digest"] = kernel.compiler_digest;
  facts["options"] = kernel.options;
  facts["launch"] = write_launch_data(kernel.source);
  facts["source"] = kernel.source.text();
  facts["cubin"] = py::bytes(kernel.cubin.bytes);
  py::dict resources;
  resources["registers"] = used.registers;
  resources["stack_bytes"] = used.stack_bytes;
  resources["spill_store_bytes"] = used.spill_store_bytes;
  resources["spill_load_bytes"] = used.spill_load_bytes;
  resources["static_shared_bytes"] = used.static_shared_bytes;
  resources["dynamic_shared_bytes"] = kernel.source.shared_bytes;
  resources["barriers"] = used.barriers;
  resources["threads"] = kernel.source.threads;
  facts["resources"] = resources;
  return facts;
}

py::bytes written(const std::vector<std::string>& entries, const std::string& plans,
                  const std::optional<std::string>& signer,
                  const std::map<std::string, std::string>& requests) {
  std::optional<SecretKey> key;
  if (signer) key.emplace(SecretKey::read(*signer));
  return write_bundle(entries, plans, key ? &*key : nullptr, requests);
}

}  // namespace

void bind_bundles(py::module_& m) {
  py::class_<OpenBundle>(m, "Bundle")
      .def(py::init([](const std::string& path) { return OpenBundle{Bundle::open(path)}; }),
           py::arg("path"))
      .def_property_readonly(
          "kernels",
          [](const OpenBundle& self) {
            py::list kernels;
            for (const BundledKernel& k : self.bundle->kernels())
              kernels.append(py::make_tuple(k.key, k.kernel, k.target, k.bytes, k.digest));
            return kernels;
          })
      .def_property_readonly("requests",
                             [](const OpenBundle& self) {
                               std::map<std::string, std::string> keys;
                               for (const BundledKernel& kernel : self.bundle->kernels())
                                 for (const std::string& request : kernel.requests)
                                   keys[request] = kernel.key;
                               return keys;
                             })
      .def_property_readonly("plans", [](const OpenBundle& self) { return self.bundle->plans(); })
      .def_property_readonly("signer",
                             [](const OpenBundle& self) -> std::optional<std::string> {
                               if (!self.bundle->signer()) return std::nullopt;
                               return self.bundle->signer()->text();
                             })
      .def(
          "entry",
          [](const OpenBundle& self, const std::string& key) {
            return py::bytes(self.bundle->read(kernel_of(self, key)));
          },
          py::arg("key"))
      .def("use", [](const OpenBundle& self) {
        const py::gil_scoped_release release;
        KernelCache::shared().add_bundle(self.bundle);
      });
  m.def("write_bundle", &written, py::arg("entries"), py::arg("plans"), py::arg("signer"),
        py::arg("requests"));
  m.def(
      "save_bundle",
      [](const std::string& path, const py::bytes& content) {
        save_bundle(path, std::string_view(content));
      },
      py::arg("path"), py::arg("content"));
  m.def(
      "make_signing_key",
      [](const std::string& path) {
        const SecretKey key = SecretKey::generate();
        key.write(path);
        return key.public_key().text();
      },
      py::arg("path"));
  m.def(
      "describe_entry",
      [](const std::string& file, const std::string& path) {
        return described(read_stored_kernel(file, path));
      },
      py::arg("file"), py::arg("path"));
}

}  // namespace flashcore::python
