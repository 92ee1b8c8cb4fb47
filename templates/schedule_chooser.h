// Chooses among the schedules of a spec, problem by problem: the winner of a measured search, if
// there is one for the problem, or else the one that the cost model predicts to be the fastest.
// Both are arithmetic on the lengths, without a lock; what was chosen for the problems of earlier
// launches is remembered.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/schedule_choice.h"
#include "templates/attention.h"
#include "templates/choice/attention_winners.h"
#include "templates/choice/cost_model.h"
#include "templates/choice/remembered_choices.h"

namespace flashcore {

/// Thread-safe: a choice depends on the problem alone, whatever was chosen before.
class ScheduleChooser : public ScheduleChoice {
 public:
  /// `winners` is a further table of winners (attention_winners.h), which takes precedence over the
  /// shipped one; `model` is that of the GPU, by default of the one that was measured first for the
  /// target. Throws ScheduleError if the table cannot be read.
  ScheduleChooser(AttentionSpec spec, const Target& target, std::string_view winners = {},
                  std::optional<CostModel> model = std::nullopt);

  /// Those of the model's GPU; without a model, of the GPUs that the shipped table was measured on.
  static int multiprocessors(const std::optional<CostModel>& model) {
    return (model ? *model : CostModel::first()).gpu.multiprocessors;
  }

  /// Those of batch, heads and lengths that the spec leaves open, by the names that its tensors have
  /// them under (attention_tensors.h).
  [[nodiscard]] const std::vector<std::string>& extents() const override { return extents_; }
  std::size_t choose(std::span<const std::int64_t> lengths) override { return find(lengths); }
  [[nodiscard]] std::size_t find(std::span<const std::int64_t> lengths) const override;
  /// What a launch with these lengths computes: of packed sequences the mean lengths, as how long
  /// each is only the GPU knows.
  [[nodiscard]] AttentionProblem problem_of(std::span<const std::int64_t> lengths) const;

  /// The number of the list for the problem: the winner of a table, followed by the others if there
  /// is one. Equal lists have one number.
  [[nodiscard]] std::size_t choose(const AttentionProblem& problem) const;

  /// The same by the cost model alone.
  [[nodiscard]] std::size_t find_fastest(const AttentionProblem& problem) const {
    return predict(problem).list;
  }

  /// How long that one takes in microseconds, as predicted; infinite without a model. A launch that
  /// asks for the problem's list next predicts nothing again.
  [[nodiscard]] double predict_us(const AttentionProblem& problem) const;
  /// The same under the schedules of the list of this number; infinite where the model does not know them.
  [[nodiscard]] double predict_us(const AttentionProblem& problem, std::size_t list) const;

  /// The number of every list that a problem of the range may get; the first is that for a problem
  /// of unknown size.
  [[nodiscard]] std::vector<std::size_t> choose_all(const AttentionProblems& problems) const;

  [[nodiscard]] std::vector<Schedule> schedules(std::size_t number) const override {
    return lists_.at(number);
  }
  [[nodiscard]] std::string describe(std::span<const std::int64_t> lengths) const override;
  [[nodiscard]] std::string preparation(std::span<const std::int64_t> lengths) const override;

  /// Why the problem gets its schedule: the times that the cost model predicts for it and for the
  /// others, a line each.
  [[nodiscard]] std::string explain(const AttentionProblem& problem) const;

 private:
  struct Candidate {
    std::size_t list;
    std::size_t row_tiles;  ///< their place among row_tiles_
    CostedSchedule cost;
  };
  static constexpr std::size_t most_candidates = 64, most_row_tiles = 8;

  void add_candidates(const Target& target);
  void add_table(Winners winners);
  std::size_t number_of(std::vector<Schedule> list);
  /// With what the spec fixes, and sequences of one length.
  [[nodiscard]] AttentionProblem comparable(const AttentionProblem& problem) const;
  /// Or `unknown`.
  [[nodiscard]] std::size_t find_winner(const AttentionProblem& problem) const;
  struct Prediction {
    std::size_t list;
    double us;
  };
  [[nodiscard]] Prediction predict(const AttentionProblem& problem) const;

  const SpecTraits traits_;
  const AttentionProblem fixed_;  ///< by the spec; 0: open
  const std::optional<CostModel> model_;
  std::vector<std::string> extents_;
  std::vector<std::vector<Schedule>> lists_;
  std::vector<Candidate> candidates_;
  std::vector<RowTiles> row_tiles_;  ///< those of the candidates
  std::vector<Winners> tables_;
  RememberedChoices remembered_;
};

}  // namespace flashcore
