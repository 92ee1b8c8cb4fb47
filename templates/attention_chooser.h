// What launches of attention run, problem by problem: a kernel under a schedule (ScheduleChooser), or
// several kernels in its place, where these are faster: with split keys (attention_decode.h), or, of f32
// on wgmma, behind kernels that split the operands in parts (attention_in_parts.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "templates/decode_choice.h"
#include "templates/schedule_chooser.h"

namespace flashcore {

/// Whether launches of a spec may run several kernels in place of one.
bool has_alternatives(const AttentionSpec& spec, const Target& target);

/// Thread-safe, as ScheduleChooser.
class AttentionChooser final : public ScheduleChooser {
 public:
  /// As ScheduleChooser's.
  AttentionChooser(const AttentionSpec& spec, const Target& target, std::string_view winners = {},
                   const std::optional<CostModel>& model = std::nullopt);

  [[nodiscard]] bool has_alternatives() const override { return splits_ || in_parts_; }
  [[nodiscard]] std::optional<std::size_t> find_alternative(
      std::span<const std::int64_t> lengths, std::int64_t multiprocessors) const override;
  [[nodiscard]] std::optional<std::size_t> find_alternative(const AttentionProblem& problem,
                                                            std::int64_t multiprocessors) const;
  [[nodiscard]] Alternative alternative(std::size_t number) const override;

  /// The number of every alternative that a problem of the range may get.
  [[nodiscard]] std::vector<std::size_t> all_alternatives(const AttentionProblems& problems) const;

 private:
  const AttentionSpec spec_;
  const Target& target_;
  const std::optional<CostModel> model_;
  std::optional<const DecodeChooser> splits_;
  std::vector<DecodeBlocks> blocks_;  ///< of splits, by the number of the alternative
  const bool in_parts_;               ///< alternative 0
};

}  // namespace flashcore
