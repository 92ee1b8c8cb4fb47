// Which elements a strided tensor has.
#include "runtime/emulator/global_memory.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

struct Layout {
  const char* name;
  std::vector<std::int64_t> dims, strides;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class StridedElements : public ::testing::TestWithParam<Layout> {};

// Against the set of all elements, made by counting.
TEST_P(StridedElements, AreExactlyTheValidOnes) {
  const Layout& layout = GetParam();
  std::vector<float> storage(512);
  float* data = storage.data() + 256;
  std::set<std::int64_t> valid = {0};
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    std::set<std::int64_t> more;
    for (const std::int64_t offset : valid)
      for (std::int64_t i = 0; i < layout.dims[d]; ++i) more.insert(offset + i * layout.strides[d]);
    valid = more;
  }
  const std::vector<TensorArgument> arguments = {{"t", DType::f32, true, {}, 4}};
  const std::vector<TensorView> tensors = {view_of(data, DType::f32, layout.dims, layout.strides)};
  GlobalMemory memory(arguments, tensors);
  EXPECT_EQ(memory.coverage().at(0).elements, static_cast<std::int64_t>(valid.size()));
  for (std::int64_t offset = -250; offset < 250; ++offset) {
    bool taken = true;
    try {
      memory.note_write(data + offset, 4, 0, 1);
    } catch (const Fault& fault) {
      taken = false;
      EXPECT_EQ(fault.kind, FaultKind::out_of_bounds);
    }
    EXPECT_EQ(taken, valid.count(offset) == 1) << offset;
  }
  EXPECT_EQ(memory.coverage().at(0).unwritten, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, StridedElements,
                         ::testing::Values(Layout{"contiguous", {3, 4, 5}, {20, 5, 1}},
                                           Layout{"padded", {3, 4, 5}, {48, 7, 1}},
                                           Layout{"transposed", {4, 3, 5}, {5, 21, 1}},
                                           Layout{"broadcast", {6, 4, 5}, {0, 5, 1}},
                                           Layout{"reversed", {3, 4, 5}, {24, -6, 1}},
                                           Layout{"overlapping", {2, 3}, {3, 2}},
                                           Layout{"sliding_window", {10, 4}, {2, 1}},
                                           Layout{"scalar", {}, {}},
                                           Layout{"empty", {3, 0, 5}, {5, 5, 1}}),
                         [](const auto& info) { return info.param.name; });

TEST(GlobalMemory, VectorMayNotLeaveItsTensor) {
  alignas(16) std::vector<float> storage(64);
  const std::vector<TensorArgument> arguments = {{"t", DType::f32, false, {}, 4}};
  const std::vector<TensorView> tensors = {view_of(storage.data(), DType::f32, {4, 6}, {8, 1})};
  const GlobalMemory memory(arguments, tensors);
  EXPECT_NO_THROW(memory.check_read(storage.data() + 8, 16, 8, 0, 1));
  EXPECT_THROW(memory.check_read(storage.data() + 12, 16, 8, 0, 1), Fault);
  EXPECT_NO_THROW(memory.check_read(storage.data() + 12, 8, 8, 0, 1));
}

}  // namespace
}  // namespace flashcore::testing
