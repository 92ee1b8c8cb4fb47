#include "tests/templates/support/planted_bugs.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace flashcore {

AttentionSpec small_spec() {
  AttentionSpec spec;
  spec.head_dim = 32;
  spec.mask = causal();
  spec.lse = true;
  return spec;
}

std::vector<std::smatch> matches(const std::string& body, const std::regex& pattern) {
  return {std::sregex_iterator(body.begin(), body.end(), pattern), std::sregex_iterator()};
}

KernelSource replaced(const KernelSource& source, const std::smatch& place,
                      const std::string& text) {
  KernelSource changed = source;
  changed.body.replace(static_cast<std::size_t>(place.position()),
                       static_cast<std::size_t>(place.length()), text);
  return changed;
}

int line_at(const std::string& body, std::ptrdiff_t position) {
  return 1 + static_cast<int>(std::count(body.begin(), body.begin() + position, '\n'));
}

void expect_right(const AttentionSpec& spec, const KernelSource& source,
                  std::span<const AttentionInputs> runs) {
  const Outcome outcome = outcome_of(spec, source, runs);
  EXPECT_FALSE(outcome.fault);
  EXPECT_EQ(outcome.words, "");
}

int expect_missed(const AttentionSpec& spec, const KernelSource& source, const std::string& pattern,
                  const std::string& replacement, const std::vector<FaultKind>& kinds,
                  std::span<const AttentionInputs> runs) {
  const std::regex expression(pattern);
  const std::vector<std::smatch> places = matches(source.body, expression);
  EXPECT_FALSE(places.empty()) << "nothing in the kernel matches " << pattern;
  for (const std::smatch& place : places) {
    SCOPED_TRACE(line_of(source, line_at(source.body, place.position())));
    const Outcome outcome =
        outcome_of(spec, replaced(source, place, place.format(replacement)), runs);
    EXPECT_TRUE(outcome.fault) << (outcome.words.empty() ? "nobody missed it" : outcome.words);
    if (!outcome.fault) continue;
    EXPECT_TRUE(std::find(kinds.begin(), kinds.end(), *outcome.fault) != kinds.end())
        << "the wrong complaint: " << outcome.words;
  }
  return static_cast<int>(places.size());
}

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

}  // namespace flashcore
