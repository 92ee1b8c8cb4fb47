#include "dsl/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dsl/error.h"
#include "dsl/json.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw SpecError({.what = fmt::format("argument {}", name), .why = why, .fix = {}, .where = {}});
}

std::string kind_of(const Error& error) {
  if (dynamic_cast<const SpecError*>(&error)) return "SpecError";
  if (dynamic_cast<const ScheduleError*>(&error)) return "ScheduleError";
  return "InternalError";
}

Json complaint_of(const Error& error) {
  const Complaint& c = error.complaint();
  return {{"error", kind_of(error)}, {"what", c.what},      {"why", c.why}, {"fix", c.fix},
          {"file", c.where.file},    {"line", c.where.line}};
}

/// The author's lines, op by op: the text says what is computed and not where that was written.
Json places_of(const Program& program) {
  Json places = Json::array();
  const ir::Function& f = program.function();
  ir::for_each_op(f, f.body, [&](const ir::Op& op, ir::BlockId) {
    places.push_back(Json::array({op.where.file, op.where.line}));
  });
  return places;
}

Json answer_of(const Exported& exported, const char* target) {
  Json json{{"program", exported.program.text()}, {"places", places_of(exported.program)}};
  if (target && exported.schedule) {
    json["schedule"] = Json::parse(to_json(exported.schedule(find_target(target))));
  }
  return json;
}

Json answer_of(const ExportedModule& exported, const char* target) {
  Json json{{"module", exported.module.text()}, {"places", Json::array()}};
  for (const Program& kernel : exported.module.kernels())
    json["places"].push_back(places_of(kernel));
  if (target && exported.schedules) {
    json["schedules"] = Json::array();
    for (const Schedule& schedule : exported.schedules(find_target(target)))
      json["schedules"].push_back(Json::parse(to_json(schedule)));
  }
  return json;
}

template <class Result>
void answer_with(Result (*build)(const Arguments&), const char* arguments, const char* target,
                 void* context, detail::ExportAnswer answer) noexcept {
  std::string text;
  try {
    const Arguments given(arguments);
    const Result exported = build(given);
    given.check_all_used();
    text = answer_of(exported, target).dump();
  } catch (const Error& error) {
    text = complaint_of(error).dump();
  } catch (const std::exception& error) {
    text = Json{
        {"error", "InternalError"},
        {"what", error.what()},
        {"why", ""},
        {"fix", ""},
        {"file", ""},
        {"line",
         0}}.dump();
  }
  answer(context, text.data(), text.size());
}

}  // namespace

Arguments::Arguments(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) refuse("list", "is not a JSON object");
  for (const auto& [name, value] : object.items()) values_[name] = value.dump();
}

const std::string* Arguments::find(const std::string& name) const {
  used_[name] = true;
  const auto at = values_.find(name);
  return at == values_.end() ? nullptr : &at->second;
}

int Arguments::integer(const std::string& name) const {
  const std::string* text = find(name);
  if (!text) refuse(name, "is missing: a whole number");
  const Json value = Json::parse(*text);
  if (!value.is_number_integer()) refuse(name, fmt::format("{} is not a whole number", *text));
  return value.get<int>();
}

int Arguments::integer(const std::string& name, int fallback) const {
  return find(name) ? integer(name) : fallback;
}

bool Arguments::flag(const std::string& name, bool fallback) const {
  const std::string* text = find(name);
  if (!text) return fallback;
  if (*text != "true" && *text != "false") refuse(name, fmt::format("{} is not a bool", *text));
  return *text == "true";
}

DType Arguments::dtype(const std::string& name, DType fallback) const {
  const std::string* text = find(name);
  if (!text) return fallback;
  const Json value = Json::parse(*text);
  const std::optional<DType> type =
      value.is_string() ? parse_dtype(value.get<std::string>()) : std::nullopt;
  if (!type) refuse(name, fmt::format("{} is not an element type such as \"bf16\"", *text));
  return *type;
}

void Arguments::check_all_used() const {
  std::vector<std::string> known;
  for (const auto& [name, used] : used_) known.push_back(name);
  for (const auto& [name, value] : values_) {
    if (!used_.contains(name)) {
      refuse(name, fmt::format("is not one that the program takes: {}", fmt::join(known, ", ")));
    }
  }
}

namespace detail {

void answer_export(Exported (*build)(const Arguments&), const char* arguments, const char* target,
                   void* context, ExportAnswer answer) noexcept {
  answer_with(build, arguments, target, context, answer);
}

void answer_export(ExportedModule (*build)(const Arguments&), const char* arguments,
                   const char* target, void* context, ExportAnswer answer) noexcept {
  answer_with(build, arguments, target, context, answer);
}

}  // namespace detail
}  // namespace flashcore
