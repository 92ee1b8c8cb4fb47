// The table of key columns is whole, and specs and blocks find the rows whose words hold for them.
#include "templates/schedules/measured_columns.h"

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dsl/variants.h"
#include "templates/schedules/schedule_lists.h"
#include "templates/schedules/schedule_parts.h"
#include "tests/templates/support/spec_of.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

constexpr int no_limit = std::numeric_limits<int>::max();

const Mask of_documents = documents({"ids", DType::i32, 1, true});

/// What a row of the table has at a head_dim.
int entry(const std::string& words, int head_dim) {
  const Json table = Json::parse(shipped_columns());
  std::istringstream cells(table["most_columns"].at(words).get<std::string>());
  std::string cell;
  for (int at = 16; at <= head_dim; at += 16) cells >> cell;
  return cell == "-" ? 0 : cell == "." ? no_limit : std::stoi(cell);
}

TEST(MeasuredColumns, HaveACellForEveryHeadDimAndWordsThatAreKnown) {
  const std::set<std::string> known{"64",
                                    "128",
                                    "192",
                                    "alone",
                                    "three_blocks",
                                    "ping_pong",
                                    "dynamic",
                                    "two_heads",
                                    "full",
                                    "masked",
                                    "bounded",
                                    "scan",
                                    "several",
                                    "documents",
                                    "chunks",
                                    "dense_mask",
                                    "plain",
                                    "softcap",
                                    "softcap_with_maximum",
                                    "lookups",
                                    "loads",
                                    "positions",
                                    "lse",
                                    "open",
                                    "ragged",
                                    "own_rows"};
  const Json table = Json::parse(shipped_columns());
  for (const auto& [name, text] : table["most_columns"].items()) {
    std::istringstream words(name), cells(text.get<std::string>());
    for (std::string word; words >> word;) EXPECT_TRUE(known.contains(word)) << name;
    int count = 0;
    for (std::string cell; cells >> cell; ++count)
      EXPECT_TRUE(cell == "-" || cell == "." || (std::stoi(cell) > 0 && std::stoi(cell) % 16 == 0))
          << name << ": " << cell;
    EXPECT_EQ(count, 256 / 16) << name;
  }
}

TEST(MeasuredColumns, AreThoseOfTheRowWhoseWordsHold) {
  const Schedule three = warpgroup_tiles(192, 128), two = warpgroup_tiles(128, 128);
  EXPECT_EQ(most_columns(SpecTraits(spec_of(128)), three), entry("192", 128));
  EXPECT_EQ(most_columns(SpecTraits(spec_of(112, causal())), three), 0);
  EXPECT_EQ(most_columns(SpecTraits(spec_of(128, causal())), two), no_limit);
  const Score relative = relative_bias({"table", DType::f32, 2}, 128);
  EXPECT_EQ(most_columns(SpecTraits(spec_of(144, causal(), relative)), two),
            entry("128 lookups bounded", 144));
}

TEST(MeasuredColumns, AreTheLeastOfAllRowsThatHold) {
  const Schedule two = warpgroup_tiles(128, 128);
  const Score slopes = alibi({"slopes", DType::f32, 1});
  EXPECT_EQ(most_columns(SpecTraits(spec_of(208, of_documents)), two),
            std::min(entry("128", 208), entry("128 documents", 208)));
  EXPECT_EQ(most_columns(SpecTraits(spec_of(208, of_documents, slopes)), two),
            entry("128 documents positions", 208));
  EXPECT_LT(entry("128 documents positions", 208), entry("128 documents", 208));
}

TEST(MeasuredColumns, DependOnTheBlockButNotOnItsOwnColumns) {
  const SpecTraits capped(spec_of(128, of_documents, softcap(30)));
  Schedule s = warpgroup_tiles(64, 64);
  EXPECT_EQ(most_columns(capped, s), no_limit);
  s.positions_per_block = 2;
  EXPECT_EQ(most_columns(capped, s), 0);
  const SpecTraits plain(spec_of(80));
  for (const int cols : {16, 112, 128})
    EXPECT_EQ(most_columns(plain, warpgroup_tiles(192, cols)), entry("192", 80));
}

TEST(MeasuredColumns, OfWideHeadsAreThoseOf256) {
  const Score relative = relative_bias({"table", DType::f32, 2}, 128);
  Schedule s = warpgroup_tiles(64, 64);
  s.tile_scheduler = PersistentScheduler::dynamic;
  EXPECT_EQ(most_columns(SpecTraits(spec_of(512, {}, relative)), s),
            entry("64 dynamic lookups", 256));
}

// A tile with more of them would spill, and cost a second compile.
TEST(MeasuredColumns, LimitEveryCandidate) {
  for (const int head_dim : {64, 112, 128, 176, 208, 256})
    for (const Mask& mask : {full(), causal(), of_documents, chunked(100)})
      for (const Score& score : {Score(), softcap(30), alibi({"slopes", DType::f32, 1})})
        for (const DType dtype : {DType::bf16, DType::f16}) {
          const SpecTraits traits(spec_of(head_dim, mask, score, dtype));
          for (const Schedule& s : hopper_candidates(traits))
            EXPECT_LE(s.tiles.at("cols"), most_columns(traits, s))
                << head_dim << " " << mask.text << " " << score.text;
        }
}

}  // namespace
}  // namespace flashcore
