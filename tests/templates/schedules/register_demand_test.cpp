// Which schedules are left out because a mask looks up too much for their tiles.
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "templates/schedules/schedule_lists.h"

namespace flashcore {
namespace {

/// Of so many conditions, of which one has to hold.
Mask any_of(int count, const std::string& condition, int rank) {
  std::string text;
  std::vector<Captured> tensors;
  for (int i = 0; i < count; ++i) {
    const std::string name = fmt::format("t{}", i);
    std::string one = condition;
    for (std::size_t at = 0; (at = one.find('T', at)) != std::string::npos; at += name.size())
      one.replace(at, 1, name);
    text += (i ? " | (" : "(") + one + ")";
    tensors.push_back({.name = name, .dtype = DType::i32, .rank = rank});
  }
  return Mask(text, tensors);
}
Mask documents(int count) { return any_of(count, "T[q_idx] == T[kv_idx]", 1); }
Mask tables(int count) { return any_of(count, "T[q_idx, kv_idx] > 0", 2); }
Mask keys(int count) { return any_of(count, "T[kv_idx] > 0", 1); }

/// The tiles of the schedules that are tried, "128x96 128x64 ...".
std::string tiles(const Mask& mask, const char* target = "sm_80", int dim = 64) {
  AttentionSpec spec;
  spec.head_dim = dim;
  spec.mask = mask;
  std::string text;
  for (const Schedule& s : attention_schedules(spec, find_target(target)))
    text += fmt::format("{}{}x{}", text.empty() ? "" : " ", s.tiles.at("rows"), s.tiles.at("cols"));
  return text;
}

TEST(RegisterDemand, WhatFitsStays) {
  const std::string all = "128x96 128x64 128x32 64x32";
  EXPECT_EQ(tiles(causal()), all);
  EXPECT_EQ(tiles(documents(1)), all);
  EXPECT_EQ(tiles(documents(2)), all);
  EXPECT_EQ(tiles(keys(6)), all);  // a bit each
  EXPECT_EQ(tiles(tables(1), "sm_80", 128), "128x32 64x32");
}

TEST(RegisterDemand, WhatDoesNotIsNotTried) {
  EXPECT_EQ(tiles(documents(3)), "128x64 128x32 64x32");
  EXPECT_EQ(tiles(documents(6)), "128x32 64x32");
  EXPECT_EQ(tiles(tables(1)), "128x64 128x32 64x32");
  EXPECT_EQ(tiles(tables(2)), "128x32 64x32");
  EXPECT_EQ(tiles(tables(6)), "64x32");
  EXPECT_EQ(tiles(tables(60)), "64x32");  // the last stays
  EXPECT_EQ(tiles(tables(6), "sm_80", 128), "64x32");
  EXPECT_EQ(tiles(documents(6), "sm_90a", 128), "128x64 128x32 64x32");
}

TEST(RegisterDemand, OnePlaceThatIsReadTwiceCountsOnce) {
  const Mask same("(t[q_idx, kv_idx] > 0) | (t[q_idx, kv_idx] < 5) | (t[q_idx, kv_idx] == 9)",
                  {{.name = "t", .dtype = DType::i32, .rank = 2}});
  EXPECT_EQ(tiles(same), tiles(tables(1)));
}

TEST(RegisterDemand, ScoresInSharedMemoryAndNewerTargetsKeepAll) {
  EXPECT_EQ(tiles(tables(6), "sm_75"), tiles(causal(), "sm_75"));
  EXPECT_EQ(tiles(tables(6), "sm_120"), tiles(causal(), "sm_120"));
}

}  // namespace
}  // namespace flashcore
