// Schedules that won a measured search (`python -m flashcore.tune`), by what of a spec decides
// which one is best. attention_winners.json holds them; it is data, so that a new measurement
// changes no code.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "templates/attention.h"
#include "templates/problem_questions.h"

namespace flashcore {

/// A table as text: a JSON array of objects, each with the fields of a key and a `schedule`. What
/// else stands in an entry (what was measured, and where) is for people.
struct WinnersFile {
  std::string_view name, text;
};

/// attention_winners.json, built in.
std::span<const WinnersFile> shipped_winners();

/// The keys under which a table may hold a schedule for the spec and the problem, the closest
/// first, as JSON objects: target, head_dim, head_dim_v; mask ("full", "causal", or the
/// expression); score and sink (the expression with # for its numbers, which cost the same whatever
/// they are, or ""); lengths ("open", "padded" or "packed"); q_len and kv_len: the power of two
/// that the length does not exceed, or null for any; and blocks of 128 rows: "few", fewer than
/// multiprocessors, "some", up to four rounds of them, or "many". Captured tensors are called t0,
/// t1, ... there. Dtype and layout of a batch make no difference.
std::vector<std::string> winner_keys(const AttentionSpec& spec, const Target& target,
                                     const AttentionProblem& problem = {});

/// The schedule that the table holds for the spec and the problem, if there is one. A field of a
/// key that an entry leaves out is that of plain full attention of any length. An entry that cannot
/// be used is left aside. Throws ScheduleError for a table that cannot be read.
std::optional<Schedule> winning_schedule(const AttentionSpec& spec, const Target& target,
                                         const AttentionProblem& problem, std::string_view table);

/// The same of the table that ships.
std::optional<Schedule> winning_schedule(const AttentionSpec& spec, const Target& target,
                                         const AttentionProblem& problem);

/// The same for a problem of which no more is known than the answers to questions.
std::optional<Schedule> winning_schedule(const AttentionSpec& spec, const Target& target,
                                         ProblemQuestions& problem);
using WinnerFinder = std::function<std::optional<Schedule>(ProblemQuestions& problem)>;
WinnerFinder winners_of(std::string_view table, const AttentionSpec& spec, const Target& target);

/// Why entries of the table cannot be used, a sentence each. Throws ScheduleError likewise.
std::vector<std::string> unusable_winners(std::string_view table);

}  // namespace flashcore
