#include "runtime/emulator/shared_operand.h"

#include <cstring>

#include "runtime/emulator/tensor_box.h"

namespace flashcore {
namespace {

// The fields of the hardware's descriptor, in units of 16 bytes.
std::uint32_t field(std::uint64_t matrix, int first_bit) {
  return static_cast<std::uint32_t>(matrix >> first_bit & 0x3fffu) << 4;
}

}  // namespace

SharedOperand::SharedOperand(std::uint64_t matrix, int size, bool transposed, const Accessor& by)
    : start_(field(matrix, 0)),
      line_bytes_(256u >> (matrix >> 62)),
      line_step_(field(matrix, 32)),
      panel_step_(field(matrix, 16)),
      size_(size),
      transposed_(transposed) {
  const auto refuse = [&](FaultKind kind, std::string why, std::string fix) {
    throw Fault{kind, by.line, std::move(why), std::move(fix), by.thread};
  };
  if (matrix >> 62 == 0) {
    refuse(FaultKind::bad_operand, "the matrix of a product has no swizzle",
           "fc::matrix() of a panel of 64, 32 or 16 columns");
  }
  if (line_step_ != 8 * line_bytes_) {
    refuse(FaultKind::bad_operand,
           fmt::format("groups of eight lines of {} bytes lie {} bytes apart in a matrix",
                       line_bytes_, line_step_),
           "fc::matrix() with the width of the panel");
  }
  const std::uint32_t past = start_ % (8 * line_bytes_);
  // The swizzle is a function of the address, so that a matrix may be some columns of one panel.
  const bool crosses = past + static_cast<std::uint32_t>(size) * 2 > line_bytes_;
  if (past >= line_bytes_ || (transposed && past != 0 && crosses)) {
    refuse(
        FaultKind::misaligned,
        fmt::format("a matrix begins at byte {} of shared memory, {} past a multiple of {}",
                    static_cast<std::int64_t>(start_) - SharedMemory::base, past, 8 * line_bytes_),
        transposed
            ? "begin at a multiple of eight lines of the panel, or take columns of this panel "
              "alone; 16 elements along the sum are 16 lines"
            : "begin in the first of eight lines of the panel; 16 elements along the sum are 32 "
              "bytes");
  }
  if (!transposed && past + depth * 2 > line_bytes_) {
    refuse(FaultKind::bad_operand,
           fmt::format("a matrix takes bytes {} to {} of lines of {} bytes", past,
                       past + depth * 2 - 1, line_bytes_),
           "go on in the next panel");
  }
  const auto width = static_cast<int>(line_bytes_ / 2);
  if (transposed && size > width && (panel_step_ == 0 || panel_step_ % (8 * line_bytes_) != 0)) {
    refuse(FaultKind::bad_operand,
           fmt::format(
               "a matrix of {} columns has panels of {}, and the next panel lies {} bytes further",
               size, width, panel_step_),
           "fc::matrix() with the bytes from panel to panel: rows of the tile times a line");
  }
}

std::uint32_t SharedOperand::chunk_at(int chunk) const {
  const int chunks_a_row = (transposed_ ? size_ : depth) / chunk_elements;
  const auto row = static_cast<std::uint32_t>(chunk / chunks_a_row);
  const std::uint32_t column = static_cast<std::uint32_t>(chunk % chunks_a_row) * 16,
                      panel = column / line_bytes_;
  return swizzled_address(start_ + row * line_bytes_ + panel * panel_step_ + column % line_bytes_,
                          line_bytes_);
}

void SharedOperand::read(const SharedMemory& shared, std::uint16_t* out) const {
  const auto size = static_cast<std::size_t>(size_);
  for (int i = 0; i < chunks(); ++i) {
    std::uint16_t elements[chunk_elements];
    std::memcpy(elements, shared.bytes_at(chunk_at(i)), sizeof elements);
    const auto first = static_cast<std::size_t>(i) * chunk_elements;
    if (transposed_) {
      std::memcpy(out + first, elements, sizeof elements);
    } else {
      for (std::size_t e = 0; e < chunk_elements; ++e)
        out[(first % depth + e) * size + first / depth] = elements[e];
    }
  }
}

}  // namespace flashcore
