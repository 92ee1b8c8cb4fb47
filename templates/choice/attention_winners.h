// Schedules that won a measured search (`python -m flashcore.tune`), by what of a spec decides
// which one is best. attention_winners.json holds them; it is data, so that a new measurement
// changes no code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "templates/attention.h"

namespace flashcore {

/// The table that ships, attention_winners.json: a JSON array of objects, each with the fields of a key
/// and a `schedule`, which may leave out what is as in a Schedule of no fields. What else stands in an
/// entry (what was measured, and where) is for people.
std::string_view shipped_winners();

/// The closest key under which a table may hold a schedule for the spec and the problem, as a JSON
/// object: target, head_dim, head_dim_v; mask ("full", "causal", or the expression); score and sink
/// (the expression with # for its numbers, which cost the same whatever they are, or ""); lengths
/// ("open", "padded" or "packed"); heads, those of all sequences, q_len and kv_len: the next of four
/// numbers to an octave (..., 1024, 1280, 1536, 1792, 2048, ...), or null for any; and blocks of 128
/// rows: "few", fewer than multiprocessors, "some", up to four rounds of them, or "many". Captured
/// tensors are called t0, t1, ... there. Dtype and layout of a batch make no difference.
std::string winner_key(const AttentionSpec& spec, const Target& target, int multiprocessors,
                       const AttentionProblem& problem = {});

/// A schedule, and the problems of its spec that it is for.
struct Winner {
  /// In place of the greatest number of a class: for every number, and for no problem, since the table
  /// has a number there that is not the greatest of a class.
  static constexpr std::int64_t any = 0, none = -1;
  std::int64_t heads = any, q_len = any, kv_len = any;  ///< the greatest of their classes
  std::size_t blocks = 0;                               ///< the number of their class
  Schedule schedule;
  std::size_t list = 0;  ///< what a chooser calls the list that begins with it

  /// The largest problem that it is for; what may be any number is not known.
  [[nodiscard]] AttentionProblem largest_problem() const {
    return {.batch = heads == any ? 0 : 1, .heads = heads, .q_len = q_len, .kv_len = kv_len};
  }
  /// Whether it may be for some problem of the range.
  [[nodiscard]] bool may_be_for(const AttentionProblems& problems) const;
};

/// The entries of a table that are for a spec and a target.
struct Winners {
  std::vector<Winner> all;
  int multiprocessors = 0;

  /// Of an empty text none. An entry that cannot be used is left aside, and a field of a key that an
  /// entry leaves out is that of plain full attention of any length. Throws ScheduleError for a table
  /// that cannot be read.
  static Winners of(std::string_view table, const AttentionSpec& spec, const Target& target,
                    int multiprocessors);
  /// Those of the table that ships.
  static Winners shipped(const AttentionSpec& spec, const Target& target, int multiprocessors);

  /// The place of the one for the problem, the closest; all.size() where there is none. A number:
  /// whether an optional holds one is read back from memory, at every launch.
  [[nodiscard]] std::size_t find(const AttentionProblem& problem) const;
};

/// Why entries of the table cannot be used, a sentence each. Throws ScheduleError likewise.
std::vector<std::string> unusable_winners(std::string_view table);

}  // namespace flashcore
