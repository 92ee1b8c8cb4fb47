// What the tests of refusals share: attempts, and the words that come back.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "templates/attention.h"

namespace flashcore {

inline Extent named(const char* name) { return Extent(std::string(name)); }

inline Schedule tiles(std::map<std::string, int> sizes) {
  Schedule schedule;
  schedule.tiles = std::move(sizes);
  return schedule;
}

/// The message, its place cut off; `own_line` says whether it named a place in an author's file.
struct Refusal {
  std::string words;
  bool own_line = false;
};

template <class Kind>
Refusal refusal(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const Kind& error) {
    Refusal refusal{error.what()};
    const Location& where = error.complaint().where;
    if (!where.known()) return refusal;
    refusal.own_line = where.file.find("tests/codegen/") != std::string::npos;
    const std::size_t at = refusal.words.find("\n  at:  ");
    refusal.words.erase(at, refusal.words.find('\n', at + 1) - at);
    return refusal;
  }
  return {"nothing was refused"};
}

inline Refusal refused(const Program& program, const Schedule& schedule,
                       const char* target = "sm_80") {
  return refusal<ScheduleError>([&] { generate(program, schedule, find_target(target)); });
}

inline AttentionSpec head_dim(int dim) {
  AttentionSpec spec;
  spec.head_dim = dim;
  return spec;
}

}  // namespace flashcore
