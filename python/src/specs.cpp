// Specs and schedules cross as JSON: the form in which they are saved as well.
#include <limits>

#include <pybind11/stl.h>

#include "codegen/why_not.h"
#include "dsl/error.h"
#include "dsl/json.h"
#include "python/src/decode_blocks.h"
#include "python/src/gpu_model.h"
#include "python/src/module.h"
#include "runtime/cuda/device.h"
#include "runtime/log.h"
#include "templates/attention.h"
#include "templates/attention_backward.h"
#include "templates/attention_chooser.h"
#include "templates/attention_in_parts.h"
#include "templates/choice/attention_winners.h"
#include "templates/decode_choice.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

using LengthPair = std::pair<std::int64_t, std::int64_t>;

std::vector<std::string> reasons_against(const std::string& json, const std::string& target_name,
                                         const std::optional<std::string>& schedule_json) {
  std::vector<std::string> reasons;
  try {
    AttentionSpec spec = attention_spec_from_json(json);
    reasons = check(spec);
    // The rest is judged by a spec that a program can be made of.
    if (!reasons.empty()) spec = nearest_valid(spec);
    const Target& target = find_target(target_name);
    const std::vector<Schedule> schedules = schedule_json
                                                ? std::vector{schedule_from_json(*schedule_json)}
                                                : attention_schedules(spec, target);
    for (std::string& reason : why_not(attention_forward(spec), schedules, target))
      reasons.push_back(std::move(reason));
  } catch (const Error& error) {
    reasons.emplace_back(error.what());
  }
  return reasons;
}

AttentionProblems problems_of(const std::vector<LengthPair>& ranges) {
  const auto range = [&](std::size_t i) {
    return LengthRange{ranges.at(i).first, ranges.at(i).second};
  };
  return {.batch = range(0), .heads = range(1), .q_len = range(2), .kv_len = range(3)};
}

std::vector<std::vector<std::string>> texts_of(const std::vector<std::vector<Schedule>>& lists) {
  std::vector<std::vector<std::string>> texts;
  for (const std::vector<Schedule>& list : lists) {
    texts.emplace_back();
    for (const Schedule& schedule : list) texts.back().push_back(to_json(schedule));
  }
  return texts;
}

}  // namespace

void bind_specs(py::module_& m) {
  m.def("normal_spec",
        [](const std::string& json) { return to_json(attention_spec_from_json(json)); });
  m.def("normal_schedule",
        [](const std::string& json) { return to_json(schedule_from_json(json)); });
  m.def("present_name", [](const std::string& old_name) { return present_name(old_name); });
  m.def("normal_dtype", [](const std::string& name) -> std::optional<std::string> {
    const std::optional<DType> type = parse_dtype(name);
    return type ? std::optional(std::string(name_of(*type))) : std::nullopt;
  });
  // Both take milliseconds, and a tuner asks for thousands of them.
  m.def("why_not", &reasons_against, py::arg("spec"), py::arg("target"), py::arg("schedule"),
        py::call_guard<py::gil_scoped_release>());
  m.def(
      "attention_program",
      [](const std::string& json) { return attention_forward(attention_spec_from_json(json)); },
      py::call_guard<py::gil_scoped_release>());
  m.def(
      "attention_schedules",
      [](const std::string& json, const std::string& target, std::int64_t batch, std::int64_t heads,
         std::int64_t q_len, std::int64_t kv_len) {
        const ScheduleChooser chooser =
            chooser_of(attention_spec_from_json(json), find_target(target));
        std::vector<std::string> schedules;
        for (const Schedule& schedule :
             chooser.schedules(chooser.choose(AttentionProblem{batch, heads, q_len, kv_len})))
          schedules.push_back(to_json(schedule));
        return schedules;
      },
      py::arg("json"), py::arg("target"), py::arg("batch") = 0, py::arg("heads") = 0,
      py::arg("q_len") = 0, py::arg("kv_len") = 0);
  m.def("decodes", [](const std::string& json, const std::string& target) {
    return can_decode(attention_spec_from_json(json), find_target(target));
  });
  m.def(
      "attention_in_parts",
      [](const std::string& json, const std::string& target) {
        const AttentionSpec spec = attention_spec_from_json(json);
        return std::pair(attention_in_parts(spec),
                         texts_of(attention_in_parts_schedules(spec, find_target(target))));
      },
      py::arg("json"), py::arg("target"), py::call_guard<py::gil_scoped_release>());
  const auto own_multiprocessors = [] {
    const Driver& driver = Driver::get();
    return multiprocessors_of(driver, current_device(driver));
  };
  py::class_<DecodeChooser, std::shared_ptr<DecodeChooser>>(m, "DecodeChooser")
      .def(py::init([](const std::string& json, const std::string& name) {
        const Target& target = find_target(name);
        return std::make_shared<DecodeChooser>(attention_spec_from_json(json), target,
                                               cost_model_of(target));
      }))
      .def_property_readonly("least_keys", &DecodeChooser::least_keys)
      .def("choose",
           [=](const DecodeChooser& chooser, std::int64_t batch, std::int64_t heads,
               std::int64_t q_len, std::int64_t kv_len) -> std::optional<NamedBlocks> {
             const auto blocks =
                 chooser.choose({batch, heads, q_len, kv_len}, own_multiprocessors());
             return blocks ? std::optional(named(*blocks)) : std::nullopt;
           })
      .def("blocks",
           [](const DecodeChooser& chooser, std::int64_t batch, std::int64_t heads,
              std::int64_t q_len, std::int64_t kv_len, std::int64_t multiprocessors) {
             return named(chooser.fastest({batch, heads, q_len, kv_len}, multiprocessors).blocks);
           })
      .def("reachable",
           [](const DecodeChooser& chooser, std::int64_t least_rows, std::int64_t most_rows) {
             std::vector<NamedBlocks> found;
             const LengthRange batch{1, std::numeric_limits<int>::max()};
             for (const DecodeBlocks& blocks : chooser.reachable(batch, {least_rows, most_rows}))
               found.push_back(named(blocks));
             return found;
           });
  m.def("most_decode_rows", [] { return most_decode_rows; });
  m.def(
      "attention_decode",
      [](const std::string& json, const std::string& target, const NamedBlocks& blocks) {
        const Target& own = find_target(target);
        const std::optional<CostModel> model = cost_model_of(own);
        Alternative made =
            attention_with_split_keys(attention_spec_from_json(json), own, blocks_named(blocks),
                                      model ? *model : CostModel::first());
        return std::pair(std::move(made.module), texts_of(made.schedules));
      },
      py::arg("json"), py::arg("target"), py::arg("blocks"),
      py::call_guard<py::gil_scoped_release>());
  m.def(
      "attention_backward",
      [](const std::string& json, bool adding) {
        const AttentionSpec spec = attention_spec_from_json(json);
        return adding ? attention_backward_adding(spec) : attention_backward(spec);
      },
      py::arg("json"), py::arg("adding") = false, py::call_guard<py::gil_scoped_release>());
  m.def(
      "attention_backward_schedules",
      [](const std::string& json, const std::string& target, bool adding, std::int64_t length) {
        const AttentionSpec spec = attention_spec_from_json(json);
        const Module module = adding ? attention_backward_adding(spec) : attention_backward(spec);
        std::vector<std::vector<Schedule>> schedules;
        for (const Program& program : module.kernels())
          schedules.push_back(
              attention_backward_schedules(program.name(), spec, find_target(target), length));
        return texts_of(schedules);
      },
      py::arg("json"), py::arg("target"), py::arg("adding") = false, py::arg("length") = any_length,
      py::call_guard<py::gil_scoped_release>());
  m.def("backward_length_bounds", &backward_length_bounds);
  m.def(
      "adding_lengths",
      [](const std::string& json,
         const std::string& target) -> std::optional<std::pair<std::int64_t, std::int64_t>> {
        const auto from = adding_lengths(attention_spec_from_json(json), find_target(target));
        if (!from) return {};
        return std::pair(from->longer, from->keys);
      },
      py::arg("json"), py::arg("target"), py::call_guard<py::gil_scoped_release>());
  m.def("schedules_depend_on_problems",
        [](const std::string& target) { return find_target(target).wgmma; });
  m.def(
      "reachable_alternatives",
      [](const std::string& json, const std::string& name, const std::vector<LengthPair>& ranges) {
        const Target& target = find_target(name);
        const AttentionChooser chooser(attention_spec_from_json(json), target, "",
                                       cost_model_of(target));
        std::vector<std::pair<Module, std::vector<std::vector<std::string>>>> found;
        for (const std::size_t number : chooser.all_alternatives(problems_of(ranges))) {
          const Alternative alternative = chooser.alternative(number);
          found.emplace_back(alternative.module, texts_of(alternative.schedules));
        }
        return found;
      },
      py::arg("json"), py::arg("target"), py::arg("ranges"));
  m.def(
      "reachable_schedules",
      [](const std::string& json, const std::string& target, const std::vector<LengthPair>& ranges,
         const std::string& winners) {
        std::vector<std::vector<std::string>> texts;
        const ScheduleChooser chooser =
            chooser_of(attention_spec_from_json(json), find_target(target), winners);
        for (const std::size_t number : chooser.choose_all(problems_of(ranges))) {
          std::vector<std::string>& list = texts.emplace_back();
          for (const Schedule& schedule : chooser.schedules(number))
            list.push_back(to_json(schedule));
        }
        return texts;
      },
      py::arg("json"), py::arg("target"), py::arg("ranges"), py::arg("winners"));
  m.def(
      "winner_key",
      [](const std::string& json, const std::string& target, std::int64_t batch, std::int64_t heads,
         std::int64_t q_len, std::int64_t kv_len) {
        const Target& of = find_target(target);
        return winner_key(attention_spec_from_json(json), of, multiprocessors_for_tables(of),
                          {batch, heads, q_len, kv_len});
      },
      py::arg("json"), py::arg("target"), py::arg("batch") = 0, py::arg("heads") = 0,
      py::arg("q_len") = 0, py::arg("kv_len") = 0);
  m.def(
      "winning_schedule",
      [](const std::string& json, const std::string& target_name,
         const std::optional<std::string>& table, std::int64_t batch, std::int64_t heads,
         std::int64_t q_len, std::int64_t kv_len) -> std::optional<std::string> {
        const AttentionSpec spec = attention_spec_from_json(json);
        const Target& target = find_target(target_name);
        const int processors = multiprocessors_for_tables(target);
        const Winners winners = table ? Winners::of(*table, spec, target, processors)
                                      : Winners::shipped(spec, target, processors);
        const std::size_t found =
            winners.find(as_fixed_by(spec, AttentionProblem{batch, heads, q_len, kv_len}));
        if (found == winners.all.size()) return std::nullopt;
        return to_json(winners.all[found].schedule);
      },
      py::arg("spec"), py::arg("target"), py::arg("table").none(true) = py::none(),
      py::arg("batch") = 0, py::arg("heads") = 0, py::arg("q_len") = 0, py::arg("kv_len") = 0);
  m.def("log_unusable_winners", [](const std::string& table, const std::string& file) {
    for (const std::string& why : unusable_winners(table))
      log_message(LogLevel::warn, "left aside among the schedules of {}: {}", file, why);
  });
  m.def("target_facts", [](const std::string& name) {
    const Target& target = find_target(name);
    py::dict facts;
    facts["capability"] = target.capability;
    facts["async_copy"] = target.async_copy;
    facts["mma_m16n8k16"] = target.mma_m16n8k16;
    facts["tf32"] = target.tf32;
    facts["tma"] = target.tma;
    facts["wgmma"] = target.wgmma;
    return facts;
  });
  m.def("targets", [] {
    std::vector<std::string> names;
    for (const Target& target : all_targets()) names.emplace_back(target.name);
    return names;
  });
}

}  // namespace flashcore::python
