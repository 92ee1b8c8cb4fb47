// The store that machines share, as Python's threads serve it.
#include "runtime/cache/remote_store.h"

#include <pybind11/stl.h>

#include "python/src/module.h"
#include "runtime/cache/cache.h"
#include "runtime/environment.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

std::chrono::milliseconds in_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

std::shared_ptr<RemoteStore> open(const std::string& url, bool writes,
                                  const std::optional<std::string>& signer, double timeout) {
  RemoteSettings settings{.url = url, .writes = writes, .timeout = in_milliseconds(timeout)};
  if (signer) settings.signer.emplace(SecretKey::read(*signer));
  return std::make_shared<RemoteStore>(std::move(settings));
}

/// (id, object, content to write or None).
std::optional<std::tuple<std::uint64_t, std::string, std::optional<py::bytes>>> next(
    RemoteStore& store, double seconds) {
  std::optional<RemoteStore::Job> job;
  {
    const py::gil_scoped_release release;
    job = store.next(in_milliseconds(seconds));
  }
  if (!job) return std::nullopt;
  std::optional<py::bytes> content;
  if (job->writes) content.emplace(job->content);
  return std::make_tuple(job->id, std::move(job->object), std::move(content));
}

}  // namespace

void bind_remote_store(py::module_& m) {
  py::class_<RemoteStore, std::shared_ptr<RemoteStore>>(m, "RemoteStore")
      .def(py::init(&open), py::arg("url"), py::arg("writes"), py::arg("signer").none(true),
           py::arg("timeout"))
      .def("next", &next, py::arg("seconds"))
      .def("answer", &RemoteStore::answer, py::arg("job"), py::arg("content").none(true),
           py::arg("failure"), py::call_guard<py::gil_scoped_release>())
      .def(
          "wait_until_written",
          [](RemoteStore& store, double seconds) {
            const py::gil_scoped_release release;
            return store.wait_until_written(in_milliseconds(seconds));
          },
          py::arg("seconds"))
      .def_property_readonly("is_closed", &RemoteStore::is_closed);
  m.def(
      "set_remote",
      [](std::shared_ptr<RemoteStore> store) {
        const py::gil_scoped_release release;
        KernelCache::shared().set_remote(std::move(store));
      },
      py::arg("store").none(true));
  m.def(
      "remote_variables",
      [] {
        return std::make_tuple(value_of(EnvironmentVariable::remote),
                               choice_of(EnvironmentVariable::remote_mode) == "write",
                               value_of(EnvironmentVariable::remote_signer));
      },
      "URL or None, whether to write, and the file of a secret key or None.");
}

}  // namespace flashcore::python
