// The cost model, for the measurement that finds its coefficients.
#include "templates/cost_model.h"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "dsl/json.h"
#include "python/src/gpu_model.h"
#include "python/src/module.h"
#include "templates/hopper_candidates.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

using Numbers = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

/// Measured launches of schedules of one family, and what the model predicts for them.
class CostProbe {
 public:
  CostProbe(int multiprocessors, std::int64_t l2_bytes)
      : gpu_{.name = "", .multiprocessors = multiprocessors, .l2_bytes = l2_bytes} {}

  void add(const std::string& spec, const std::string& schedule, const Numbers& problem) {
    const auto [batch, heads, q_len, kv_len] = problem;
    const Spec& read = spec_of(spec);
    Launch& launch = launches_.emplace_back(
        Launch{&read, schedule_from_json(schedule), {batch, heads, q_len, kv_len}, {}});
    launch.visible = read.mask.visible_keys(launch.problem, launch.schedule.tiles.at("rows"));
  }

  [[nodiscard]] std::vector<double> times(const std::vector<double>& coefficients,
                                          double bytes_per_us, double cluster_share) const {
    const FamilyCosts costs = FamilyCosts::from(coefficients);
    const CostModel model(gpu_, bytes_per_us, cluster_share);
    std::vector<double> times;
    for (const Launch& launch : launches_)
      times.push_back(CostedSchedule(launch.spec->spec, launch.schedule, launch.spec->mask,
                                     launch.spec->score, model, &costs)
                          .time_us(launch.problem, launch.visible));
    return times;
  }

 private:
  struct Spec {
    AttentionSpec spec;
    MaskTraits mask;
    ScoreTraits score;
  };
  struct Launch {
    const Spec* spec;
    Schedule schedule;
    AttentionProblem problem;
    VisibleKeys visible;
  };

  const Spec& spec_of(const std::string& json) {
    std::unique_ptr<Spec>& spec = specs_[json];
    if (!spec) {
      const AttentionSpec read = attention_spec_from_json(json);
      spec = std::make_unique<Spec>(Spec{read, MaskTraits(read), traits_of_score(read)});
    }
    return *spec;
  }

  GpuFacts gpu_;
  std::map<std::string, std::unique_ptr<Spec>> specs_;
  std::vector<Launch> launches_;
};

}  // namespace

void bind_cost_model(py::module_& m) {
  py::class_<CostProbe>(m, "CostProbe")
      .def(py::init<int, std::int64_t>(), py::arg("multiprocessors"), py::arg("l2_bytes"))
      .def("add", &CostProbe::add, py::arg("spec"), py::arg("schedule"), py::arg("problem"))
      .def("times", &CostProbe::times, py::arg("coefficients"), py::arg("bytes_per_us"),
           py::arg("cluster_share"), py::call_guard<py::gil_scoped_release>());
  m.def("cost_family", [](const std::string& schedule, bool masked) {
    return cost_family(schedule_from_json(schedule), masked);
  });
  m.def("cost_names", [] {
    const auto names = FamilyCosts::names();
    return std::vector<std::string>(names.begin(), names.end());
  });
  m.def("cost_dims", [] {
    return std::vector<int>(std::begin(FamilyCosts::measured_dims),
                            std::end(FamilyCosts::measured_dims));
  });
  m.def("forget_cost_models", &forget_cost_models,
        "After the file of coefficients was written: kernels made from now on go by it.");
  m.def(
      "choose_with",
      [](const std::string& json, const std::string& target, const Numbers& problem,
         const std::string& table, const std::tuple<std::string, int, std::int64_t>& gpu) {
        const auto [name, multiprocessors, l2_bytes] = gpu;
        const auto [batch, heads, q_len, kv_len] = problem;
        const ScheduleChooser chooser(
            attention_spec_from_json(json), find_target(target), "",
            CostModel::find(target, {name, multiprocessors, l2_bytes}, table));
        const AttentionProblem wanted{batch, heads, q_len, kv_len};
        return to_json(chooser.schedules(chooser.find_fastest(wanted)).front());
      },
      py::arg("spec"), py::arg("target"), py::arg("problem"), py::arg("table"), py::arg("gpu"),
      "The schedule that a table of coefficients makes of a problem on a GPU.");
  m.def(
      "explain_choice",
      [](const std::string& json, const std::string& target, const Numbers& problem) {
        const auto [batch, heads, q_len, kv_len] = problem;
        return chooser_of(attention_spec_from_json(json), find_target(target))
            .explain(AttentionProblem{batch, heads, q_len, kv_len});
      },
      py::arg("spec"), py::arg("target"), py::arg("problem"));
  m.def("candidate_schedules", [](const std::string& json) {
    const AttentionSpec spec = attention_spec_from_json(json);
    std::vector<std::string> texts;
    for (const Schedule& s : hopper_candidates(spec, MaskTraits(spec), traits_of_score(spec)))
      texts.push_back(to_json(s));
    return texts;
  });
}

}  // namespace flashcore::python
