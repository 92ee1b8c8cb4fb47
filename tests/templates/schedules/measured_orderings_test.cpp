// The table of measured orderings is whole, and specs find in it what it has for their kind.
#include "templates/schedules/measured_orderings.h"

#include <optional>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dsl/json.h"
#include "dsl/variants.h"
#include "tests/templates/support/spec_of.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

/// What the table has for a kind: the ordering at a head_dim, or none.
std::optional<Schedule> entry(const std::string& kind, int head_dim) {
  const Json table = Json::parse(shipped_orderings());
  std::istringstream numbers(table["measured"][kind].get<std::string>());
  std::string number;
  for (int at = 16; at <= head_dim; at += 16) numbers >> number;
  if (number == "-") return std::nullopt;
  return schedule_from_json(table["orderings"][number].dump());
}

TEST(MeasuredOrderings, HaveANumberOfTheTableForEveryHeadDimOfEveryKind) {
  const Json table = Json::parse(shipped_orderings());
  std::set<std::string> used;
  for (const auto& [kind, text] : table["measured"].items()) {
    std::istringstream numbers(text.get<std::string>());
    int count = 0;
    for (std::string number; numbers >> number; ++count) {
      EXPECT_TRUE(number == "-" || table["orderings"].contains(number)) << kind << " " << number;
      used.insert(number);
    }
    EXPECT_EQ(count, 256 / 16) << kind;
  }
  for (const auto& [number, fields] : table["orderings"].items())
    EXPECT_EQ(used.count(number), 1U) << "no kind has ordering " << number;
}

TEST(MeasuredOrderings, AreThoseOfTheKindOfASpec) {
  const Score dense = bias({"table", DType::bf16, 2, /*unit_stride=*/true, /*aligned_rows=*/true});
  const Score relative = relative_bias({"table", DType::f32, 2}, 128);
  const struct {
    AttentionSpec spec;
    const char* kind;
  } cases[]{
      {spec_of(64), "full plain open"},
      {spec_of(64, causal()), "causal plain open"},
      {spec_of(64, sliding_window(128, 0)), "window plain open"},
      {spec_of(64, documents({"ids", DType::i32, 2})), "scan plain open"},
      {spec_of(128, causal(), softcap(30)), "causal softcap open"},
      {spec_of(128, causal(), softcap(30), DType::f16), "causal softcap_with_maximum open"},
      {spec_of(80, {}, alibi({"slopes", DType::f32, 1})), "full positions open"},
      {spec_of(160, causal(), relative), "causal lookups open"},
      {spec_of(128, {}, dense), "full loads open"},
  };
  for (const auto& [spec, kind] : cases)
    for (const char* family : {"64/no_producer", "128", "128/ping_pong", "128/multicast", "192"}) {
      const std::string row = std::string(family) + " " + kind;
      if (!Json::parse(shipped_orderings())["measured"].contains(row)) continue;
      const Schedule* const found = measured_ordering(SpecTraits(spec), family);
      const std::optional<Schedule> expected = entry(row, spec.head_dim);
      ASSERT_EQ(found != nullptr, expected.has_value()) << row << " " << spec.head_dim;
      if (expected) {
        EXPECT_EQ(*found, *expected) << row << " " << spec.head_dim;
      }
    }
}

TEST(MeasuredOrderings, OfRaggedSequencesAreOthersWhereBlocksAreNotPersistent) {
  AttentionSpec spec = spec_of(64, causal());
  spec.kv_lens = true;
  const Schedule* found = measured_ordering(SpecTraits(spec), "128/ping_pong");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, *entry("128/ping_pong causal plain open", 64));
  found = measured_ordering(SpecTraits(spec), "64/no_producer");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, *entry("64/no_producer causal plain ragged", 64));
  spec.q_lens = true;
  found = measured_ordering(SpecTraits(spec), "128");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, *entry("128 causal plain ragged", 64));
  spec.mask = chunked(40);
  found = measured_ordering(SpecTraits(spec), "128");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, *entry("128 scan plain ragged", 64));
}

TEST(MeasuredOrderings, GoByTheWidestOfScoresAndValues) {
  AttentionSpec spec = spec_of(64, causal());
  spec.head_dim_v = 192;
  const Schedule* const found = measured_ordering(SpecTraits(spec), "128");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, *entry("128 causal plain open", 192));
}

TEST(MeasuredOrderings, EndWithAHeadDimOf256) {
  EXPECT_EQ(measured_ordering(SpecTraits(spec_of(320, causal())), "128"), nullptr);
  EXPECT_EQ(measured_ordering(SpecTraits(spec_of(64, causal())), "no family"), nullptr);
}

}  // namespace
}  // namespace flashcore
