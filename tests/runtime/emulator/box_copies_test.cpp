// Boxes between tensors and shared memory: what they move, when, and how they are misused.
#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/sm90_kernels.h"

namespace flashcore::testing {
namespace {

constexpr std::string_view begin =
    "if (thread == 0) {\n  fc::init_mbarrier(full, 1);\n  "
    "fc::publish_mbarriers();\n}\nfc::barrier();\n";
constexpr std::string_view load =
    "if (thread == 0) {\n  fc::arrive_expect_tx(full, 8192);\n"
    "  fc::load_box(tile, p.in, full, 0, 0, 0);  // load\n}\n";
constexpr std::string_view wait = "fc::wait_phase(full, 0);\n";
/// Every element of the tile, by its place in shared_tile.cuh.
constexpr std::string_view show = R"(
  for (int i = thread; i < 64 * width; i += 128) {
    const fc::u32 at = fc::swizzled(width, i / width, i % width) + i % 8 / 2 * 4;
    const fc::u32 word = fc::load_shared_word(tile + at);  // show
    const float value = fc::to_float(fc::bf16{fc::u16(word >> i % 2 * 16)});
    fc::store_global<1>(p.y + i, &value);
  }
)";
constexpr std::string_view fill = R"(
  for (int i = thread; i < 64 * width / 2; i += 128)
    fc::store_shared(tile + fc::swizzled(width, 2 * i / width, 2 * i % width) + i % 4 * 4,
                     fc::pack<fc::bf16>(2 * i % 128, 2 * i % 128 + 1));
)";
constexpr std::string_view store =
    "if (thread == 0) {\n  fc::store_box(p.out, tile, 0, 0, 0);  // store\n  "
    "fc::commit_stores();\n}\n";
constexpr std::string_view wait_store = "if (thread == 0) fc::wait_stores_read<0>();\n";
constexpr std::string_view fence = "fc::fence_async();\n", meet = "fc::barrier();\n";

KernelSource kernel_of(std::initializer_list<std::string_view> lines, int width = 64) {
  std::string statements = fmt::format("constexpr int width = {};\n", width);
  for (const std::string_view line : lines) statements += line;
  return box_kernel(statements);
}

void expect_failure(const KernelSource& source, FaultKind kind, std::string_view line,
                    std::string_view says) {
  SCOPED_TRACE(source.body);
  const EmulatorError error = failure_of([&] { BoxRun()(source); });
  EXPECT_EQ(name_of(error.kind()), name_of(kind)) << error.what();
  EXPECT_EQ(error.line(), line_of(source, line)) << error.what();
  EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
}

TEST(BoxLoads, LandSwizzledWithZerosOutside) {
  for (const int width : {64, 32, 16}) {
    for (const auto& [column, row] : {std::pair(0, 0), std::pair(8, 40), std::pair(-16, -3)}) {
      SCOPED_TRACE(fmt::format("width {}, from {}, {}", width, column, row));
      BoxRun run{.width = width};
      run(with(with(kernel_of({begin, load, wait, show}, width), "0, 0, 0);  // load",
                    fmt::format("{}, {}, 0);  // load", column, row)),
               "8192", std::to_string(width * 128)));
      for (int r = 0; r < 64; ++r)
        for (int c = 0; c < width; ++c) {
          const int from = r + row, at = c + column;
          const bool inside = from >= 0 && from < 64 && at >= 0 && at < width;
          ASSERT_EQ(run.y[static_cast<std::size_t>(r * width + c)],
                    inside ? static_cast<float>((from * width + at) % 128) : 0.f)
              << r << ", " << c;
        }
    }
  }
}

TEST(BoxLoads, AreInFlightUntilTheirPhaseIsOver) {
  expect_failure(kernel_of({begin, load, "fc::barrier();\n", show, wait}), FaultKind::in_flight,
                 "// show", "is the target of a box load that thread 0 issued");
  expect_failure(kernel_of({begin, load}), FaultKind::in_flight, "// load",
                 "nobody waits for phase 0");
}

// They have completed for those who waited, and for those whom these have told.
TEST(BoxLoads, AreVisibleToThoseWhoWaited) {
  constexpr std::string_view one_warp_waits = "if (warp == 1) fc::wait_phase(full, 0);\n";
  EXPECT_NO_THROW(BoxRun()(kernel_of({begin, load, one_warp_waits, "fc::barrier();\n", show})));
  expect_failure(kernel_of({begin, load, one_warp_waits, show}), FaultKind::race, "// show",
                 "was written by a box load of the mbarrier at byte 16384");
}

TEST(BoxLoads, MayNotOvertakeReaders) {
  constexpr std::string_view again =
      "if (thread == 0) {\n  fc::arrive_expect_tx(full, 8192);\n"
      "  fc::load_box(tile, p.in, full, 0, 0, 0);  // again\n}\nfc::wait_phase(full, 1);\n";
  EXPECT_NO_THROW(BoxRun()(kernel_of({begin, load, wait, show, fence, meet, again})));
  expect_failure(kernel_of({begin, load, wait, show, meet, again}), FaultKind::unfenced, "// again",
                 "fence_async() in every thread that reads, before the barrier");
  expect_failure(kernel_of({begin, load, wait, show, meet, fence, again}), FaultKind::unfenced,
                 "// again", "was read by thread");
  expect_failure(kernel_of({begin, load, wait, show, "if (thread != 7) ", fence, meet, again}),
                 FaultKind::unfenced, "// again", "was read by thread 7 at line");
  expect_failure(
      kernel_of({begin, load, wait, show, fence, "if (warp < 2) fc::meet(1, 64);\n", again}),
      FaultKind::race, "// again", "was read by thread");
  expect_failure(kernel_of({begin, fill, meet, load, wait}), FaultKind::unfenced, "// load",
                 "which this overwrites asynchronously");
  EXPECT_NO_THROW(BoxRun()(kernel_of({begin, fill, fence, meet, load, wait})));
}

TEST(BoxLoads, NameWhatTheCopyEngineTakes) {
  const auto failing = [&](std::string_view from, std::string_view to, FaultKind kind,
                           std::string_view says) {
    expect_failure(with(kernel_of({begin, load, wait}), from, to), kind, "// load", says);
  };
  failing("(tile, p.in", "(tile + 512, p.in", FaultKind::misaligned,
          "at byte 512 of shared memory");
  failing("(tile, p.in", "(tile + 28672, p.in", FaultKind::out_of_bounds, "the block has 32768");
  failing("(tile, p.in", "(tile + 15360, p.in", FaultKind::misused_mbarrier,
          "belongs to the mbarrier");
  failing("full, 0, 0, 0)", "full, 0, 0)", FaultKind::bad_operand, "2 coordinates are given");
  failing("p.in, full", "fc::tensor_map{}, full", FaultKind::bad_operand, "was not filled in");
}

TEST(BoxStores, WriteWhatLiesInside) {
  for (const int width : {64, 32, 16}) {
    BoxRun run{.width = width};
    const EmulationReport report =
        run(with(kernel_of({fill, fence, meet, store, wait_store}, width),
                 "tile, 0, 0, 0);  // store", "tile, 8, 40, 0);  // store"));
    for (int r = 0; r < 64; ++r)
      for (int c = 0; c < width; ++c) {
        const float expected =
            r >= 40 && c >= 8 ? static_cast<float>(((r - 40) * width + c - 8) % 128) : 0.f;
        ASSERT_EQ(from_bfloat(run.z[static_cast<std::size_t>(r * width + c)]), expected)
            << r << ", " << c;
      }
    EXPECT_EQ(report.outputs[1].unwritten, 64 * width - 24 * (width - 8));
  }
}

TEST(BoxStores, ReadWhatWasFencedAndOrdered) {
  EXPECT_NO_THROW(BoxRun()(kernel_of({fill, fence, meet, store, wait_store})));
  expect_failure(kernel_of({fill, meet, store, wait_store}), FaultKind::unfenced, "// store",
                 "fence_async() in every thread that writes, before the barrier");
  expect_failure(kernel_of({fill, meet, fence, store, wait_store}), FaultKind::unfenced, "// store",
                 "that thread has not called fence_async() between its write and the barrier");
  expect_failure(kernel_of({fence, fill, meet, store, wait_store}), FaultKind::unfenced, "// store",
                 "has not called fence_async()");
  expect_failure(with(kernel_of({fill, fence, store}), "thread == 0) {\n  fc::store_box",
                      "thread == 127) {\n  fc::store_box"),
                 FaultKind::race, "// store", "no barrier orders that write before this read");
  // What a box load has brought needs no fence.
  EXPECT_NO_THROW(BoxRun()(kernel_of({begin, load, wait, store, wait_store})));
}

TEST(BoxStores, ReadUntilTheyAreAwaited) {
  constexpr std::string_view ready = "fc::fence_async();\nfc::barrier();\n",
                             write = "if (thread == 0) fc::store_shared(tile, 0u);  // write\n";
  EXPECT_NO_THROW(BoxRun()(kernel_of({fill, ready, store, wait_store, write})));
  expect_failure(kernel_of({fill, ready, store, write}), FaultKind::race, "// write",
                 "was read by a box store of thread 0 at line");
  // Another thread has to be told.
  constexpr std::string_view other = "if (thread == 64) fc::store_shared(tile, 0u);  // write\n";
  EXPECT_NO_THROW(BoxRun()(kernel_of({fill, ready, store, wait_store, "fc::barrier();\n", other})));
  expect_failure(kernel_of({fill, ready, store, wait_store, other}), FaultKind::race, "// write",
                 "was read by a box store of thread 0 at line");
  expect_failure(kernel_of({fill, ready, store}), FaultKind::in_flight, "// store",
                 "may still read shared memory");
}

/// As a GPU raises it; a load fills what lies in front of the tensor with zeros.
TEST(BoxStores, BeginInTheTensor) {
  expect_failure(with(kernel_of({fill, fence, meet, store, wait_store}),
                      "tile, 0, 0, 0);  // store", "tile, 0, -3, 0);  // store"),
                 FaultKind::bad_operand, "// store",
                 "at the coordinate -3: an illegal instruction");
}

TEST(BoxStores, WriteOutputs) {
  expect_failure(with(kernel_of({fill, fence, meet, store, wait_store}), "p.out", "p.in"),
                 FaultKind::read_only, "// store", "x is an input");
}

}  // namespace
}  // namespace flashcore::testing
