// The cost model, for the measurement that finds its coefficients.
#include "templates/choice/cost_model.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "dsl/json.h"
#include "python/src/decode_blocks.h"
#include "python/src/gpu_model.h"
#include "python/src/module.h"
#include "templates/decode_choice.h"
#include "templates/schedules/measured_columns.h"
#include "templates/schedules/schedule_lists.h"

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
    const SpecTraits& read = spec_of(spec);
    Launch& launch = launches_.emplace_back(
        Launch{&read, schedule_from_json(schedule), {batch, heads, q_len, kv_len}, {}});
    const Schedule& own = launch.schedule;
    launch.visible = read.mask.visible_keys(
        launch.problem, {own.tiles.at("rows") * own.multicast_blocks, own.end_aligned_tiles});
  }

  [[nodiscard]] std::vector<double> times(const std::string& coefficients, double bytes_per_us,
                                          double cluster_share, double scan_us,
                                          double score_operation_us) const {
    const auto costs = costs_from_json<FamilyCosts>(coefficients);
    CostModel model{.gpu = gpu_,
                    .costs = {.bytes_per_us = bytes_per_us,
                              .cluster_share = cluster_share,
                              .scan_us = scan_us,
                              .score_operation_us = score_operation_us},
                    .properties = CostModel::first().properties};
    std::vector<double> times;
    for (const auto& [of, schedule, problem, visible] : launches_) {
      model.families.try_emplace(cost_family(schedule), costs);
      times.push_back(CostedSchedule(*of, schedule, model).time_us(problem, visible));
    }
    return times;
  }

 private:
  struct Launch {
    const SpecTraits* spec;
    Schedule schedule;
    AttentionProblem problem;
    VisibleKeys visible;
  };

  const SpecTraits& spec_of(const std::string& json) {
    std::unique_ptr<SpecTraits>& spec = specs_[json];
    if (!spec) spec = std::make_unique<SpecTraits>(attention_spec_from_json(json));
    return *spec;
  }

  GpuFacts gpu_;
  std::map<std::string, std::unique_ptr<SpecTraits>> specs_;
  std::vector<Launch> launches_;
};

/// The same of programs with split keys.
class SplitProbe {
 public:
  explicit SplitProbe(int multiprocessors) : multiprocessors_(multiprocessors) {}

  /// Without a number of splits, what the number takes that is predicted to be the fastest.
  void add(const std::string& spec, const NamedBlocks& blocks, const Numbers& problem,
           std::optional<std::int64_t> splits) {
    const auto [batch, heads, q_len, kv_len] = problem;
    const AttentionSpec read = attention_spec_from_json(spec);
    const DecodeBlocks own = blocks_named(blocks);
    launches_.push_back(
        {read, own,
         decode_problem(read, own, {batch, heads, q_len, kv_len}, KeyRange(read), multiprocessors_),
         splits});
  }

  [[nodiscard]] std::vector<double> times(const std::string& coefficients,
                                          double bytes_per_us) const {
    const auto costs = costs_from_json<DecodeCosts>(coefficients);
    CostModel model{.costs = {.bytes_per_us = bytes_per_us}};
    std::vector<double> times;
    for (const auto& [spec, blocks, problem, splits] : launches_) {
      model.decoding.try_emplace(decode_family(blocks), costs);
      const SplitCosts own = split_costs(spec, blocks, model);
      times.push_back(to_microseconds(splits ? cost_of_splits(problem, own, *splits)
                                             : decode_splits(problem, own).cost));
    }
    return times;
  }

 private:
  struct Launch {
    AttentionSpec spec;
    DecodeBlocks blocks;
    DecodeProblem problem;
    std::optional<std::int64_t> splits;
  };

  int multiprocessors_;
  std::vector<Launch> launches_;
};

}  // namespace

void bind_cost_model(py::module_& m) {
  py::class_<CostProbe>(m, "CostProbe")
      .def(py::init<int, std::int64_t>(), py::arg("multiprocessors"), py::arg("l2_bytes"))
      .def("add", &CostProbe::add, py::arg("spec"), py::arg("schedule"), py::arg("problem"))
      .def("times", &CostProbe::times, py::arg("coefficients"), py::arg("bytes_per_us"),
           py::arg("cluster_share"), py::arg("scan_us") = 0, py::arg("score_operation_us") = 0,
           py::call_guard<py::gil_scoped_release>());
  py::class_<SplitProbe>(m, "SplitProbe")
      .def(py::init<int>(), py::arg("multiprocessors"))
      .def("add", &SplitProbe::add, py::arg("spec"), py::arg("blocks"), py::arg("problem"),
           py::arg("splits"))
      .def("times", &SplitProbe::times, py::arg("coefficients"), py::arg("bytes_per_us"));
  m.def("decode_family",
        [](const NamedBlocks& blocks) { return decode_family(blocks_named(blocks)); });
  m.def("cost_family",
        [](const std::string& schedule) { return cost_family(schedule_from_json(schedule)); });
  m.def("cost_dims",
        [] { return std::vector<int>(std::begin(measured_dims), std::end(measured_dims)); });
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
      "decode_choice_with",
      [](const std::string& json, const std::string& target, const Numbers& problem,
         const std::string& table,
         const std::tuple<std::string, int, std::int64_t>& gpu) -> std::optional<NamedBlocks> {
        const auto [name, multiprocessors, l2_bytes] = gpu;
        const auto [batch, heads, q_len, kv_len] = problem;
        const DecodeChooser chooser(
            attention_spec_from_json(json), find_target(target),
            CostModel::find(target, {name, multiprocessors, l2_bytes}, table));
        const auto blocks = chooser.choose({batch, heads, q_len, kv_len}, multiprocessors);
        return blocks ? std::optional(named(*blocks)) : std::nullopt;
      },
      py::arg("spec"), py::arg("target"), py::arg("problem"), py::arg("table"), py::arg("gpu"),
      "The blocks that a table of coefficients makes of a problem, if its keys are split.");
  m.def(
      "explain_choice",
      [](const std::string& json, const std::string& target, const Numbers& problem,
         std::int64_t longest) {
        const auto [batch, heads, q_len, kv_len] = problem;
        const AttentionSpec spec = attention_spec_from_json(json);
        const Target& of = find_target(target);
        const AttentionProblem wanted{batch, heads, q_len, kv_len, longest};
        std::string text = chooser_of(spec, of).explain(wanted);
        const bool known = batch > 0 && heads > 0 && q_len > 0 && kv_len > 0;
        if (known && can_decode(spec, of))
          text += DecodeChooser(spec, of, cost_model_of(of))
                      .explain(wanted, multiprocessors_for_tables(of));
        return text;
      },
      py::arg("spec"), py::arg("target"), py::arg("problem"), py::arg("longest"));
  m.def("candidate_schedules", [](const std::string& json) {
    std::vector<std::string> texts;
    for (const Schedule& s : hopper_candidates(SpecTraits(attention_spec_from_json(json))))
      texts.push_back(to_json(s));
    return texts;
  });
  m.def("most_columns", [](const std::string& spec, const std::string& schedule) {
    return most_columns(SpecTraits(attention_spec_from_json(spec)), schedule_from_json(schedule));
  });
}

}  // namespace flashcore::python
