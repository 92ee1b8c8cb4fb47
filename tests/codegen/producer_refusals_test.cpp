// What code generation refuses of the producer that a schedule asks for, word by word.
#include <gtest/gtest.h>

#include "tests/codegen/support/refusals.h"
#include "tests/codegen/support/schedules.h"

namespace flashcore {
namespace {

TEST(ProducerRefusals, RegistersOfRoles) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  schedule.persistent = true;
  schedule.tile_scheduler = PersistentScheduler::dynamic;
  schedule.multicast_blocks = 2;
  schedule.stages = 1;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  schedule.blocks_per_processor = 5;
  EXPECT_EQ(
      refused(program, schedule, "sm_90a").words,
      "5 blocks of 384 threads a multiprocessor\n"
      "  why: each thread begins with 32 registers, a thread of the producer takes 40, and the 24 "
      "that are left for a thread of the consumers are fewer\n"
      "  try: fewer blocks_per_processor");
}

TEST(ProducerRefusals, BlocksWithoutAProducer) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(64, 64);
  schedule.producer = false;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words, "nothing was refused");
  schedule.persistent = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "producer = false with persistent = true\n"
            "  why: the producer is what issues the next tile's loads during a store\n"
            "  try: persistent = false, or producer = true");
  schedule.persistent = false, schedule.ping_pong = true;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "ping_pong = true with one warpgroup\n"
            "  why: ping-pong needs a second warpgroup\n"
            "  try: ping_pong = false");
  schedule = warpgroups(128, 64);
  schedule.producer = false;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "producer = false with warps_m = 8\n"
            "  why: a warpgroup waits for its own products to have read a slot, and not for those "
            "of another\n"
            "  try: warps_m = 4 and warps_n = 1, or producer = true");
  schedule = tiles({{"rows", 64}, {"cols", 64}});
  schedule.producer = false;
  EXPECT_EQ(refused(program, schedule).words,
            "producer = false without copy = tma\n"
            "  why: only with copy = tma does a block have a producer\n"
            "  try: producer = true");
}

TEST(ProducerRefusals, LimitsOfTwoProducerWarps) {
  const Program program = attention_forward(head_dim(64));
  Schedule schedule = warpgroups(128, 64);
  schedule.producer_warps = 3;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "producer_warps = 3\n"
            "  why: one or two warps of the producer issue loads\n"
            "  try: 1 or 2");
  schedule.producer_warps = 2;
  schedule.persistent = true;
  schedule.multicast_blocks = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "producer_warps = 2 with multicast_blocks = 2\n"
            "  why: each block of the cluster has one warp that loads tiles for both blocks\n"
            "  try: producer_warps = 1");
  schedule = warpgroups(64, 64);
  schedule.producer = false;
  schedule.producer_warps = 2;
  EXPECT_EQ(refused(program, schedule, "sm_90a").words,
            "producer_warps = 2 with producer = false\n"
            "  why: there is no producer whose warps could issue loads\n"
            "  try: producer_warps = 1");
}

}  // namespace
}  // namespace flashcore
