#include "runtime/emulator/block.h"

#include <bit>
#include <cstring>

#include "runtime/emulator/block_meeting.h"
#include "runtime/emulator/cluster.h"

namespace flashcore {
namespace {

constexpr int row_bytes = 16;

}  // namespace

Block::Block(Cluster& cluster, int rank, int threads, int registers, int shared_bytes,
             GlobalMemory& memory)
    : cluster_(cluster),
      threads_(threads),
      first_thread_(rank * threads),
      memory_(memory),
      scheduler_(cluster.scheduler()),
      clocks_(cluster.clocks()),
      shared_(shared_bytes, clocks_),
      banks_(threads / lanes),
      warps_(static_cast<std::size_t>(threads / lanes)),
      waited_(static_cast<std::size_t>(threads)),
      copies_(static_cast<std::size_t>(threads)),
      bulk_(scheduler_.threads(), memory_, shared_, clocks_),
      mbarriers_(scheduler_, shared_, clocks_,
                 [this](const TensorBox& box, int agent, std::int32_t time) {
                   bulk_.complete(box, agent, time);
                 }),
      named_(threads, shared_, clocks_),
      registers_(static_cast<std::size_t>(threads / ProductRequest::threads), registers) {
  for (int first = 0; first + ProductRequest::threads <= threads; first += ProductRequest::threads)
    groups_.push_back(std::make_unique<Group>(first_thread_ + first, shared_, clocks_));
}

void Block::prepare(int index, const GridSize& grid) {
  index_ = index;
  const auto x = static_cast<int>(grid.x), y = static_cast<int>(grid.y);
  position_ = {index % x, index / x % y, index / x / y};
  extent_ = {x, y, static_cast<int>(grid.z)};
  bulk_.reset();
  mbarriers_.reset();
  if (clocks_.running()) named_.reset();
  registers_.reset();
  shared_.reset();
  for (AsyncCopies& copies : copies_) copies.reset();
  waited_.assign(waited_.size(), !memory_.early());
  known_.clear();
  awaiting_ = 0;
  for (Warp& warp : warps_) warp.arrived = warp.at_barrier = warp.in_group = warp.left = 0;
  for (const std::unique_ptr<Group>& group : groups_) {
    group->arrived = group->left = 0;
    group->products.reset();
  }
  received_.clear();
  at_barrier_ = left_ = 0;
}

void Block::leave() {
  Warp& mine = warp();
  ++mine.left;
  ++left_;
  if (mine.arrived > 0) part(FaultKind::divergence, mine.line, "leaves the kernel");
  if (const auto index = static_cast<std::size_t>(thread_index() / ProductRequest::threads);
      index < groups_.size()) {
    Group& around = *groups_[index];
    ++around.left;
    if (around.arrived > 0) part(FaultKind::group_divergence, around.line, "leaves the kernel");
    around.products.check_left(agent());
  }
  if (clocks_.running()) {
    bulk_.leave(agent(), index_, known_);
    if (left_ == threads_) {
      mbarriers_.check_end();
      check_received();
    }
  }
  if (at_barrier_ > 0) part(FaultKind::barrier_mismatch, barrier_line_, "leaves the kernel");
}

// Who is where, told when the running thread finds that the others are elsewhere.
void Block::part(FaultKind kind, int line, const std::string& here) {
  const bool in_warp = kind == FaultKind::divergence,
             in_group = kind == FaultKind::group_divergence;
  const int threads = in_warp    ? lanes
                      : in_group ? ProductRequest::threads
                                 : threads_,
            first = first_thread_ + thread_index() / threads * threads;
  throw Fault{
      kind, line,
      fmt::format("thread {} {}, while {}", agent(), here,
                  flashcore::describe_waits(scheduler_, first, first + threads)),
      in_warp ? "move it out of the condition, so that all 32 lanes reach it together"
      : in_group
          ? "move it out of the condition, so that all 128 threads of the warpgroup reach it "
            "together"
          : "move the barrier out of the condition, so that every thread reaches it"};
}

void Block::leave_array(const char* array, long long index, int line) {
  throw Fault{FaultKind::out_of_bounds, line,
              fmt::format("index {} of an array of registers, {}", index, array),
              "an index inside of it, or a larger array"};
}

void Block::barrier(int line) {
  Warp& mine = warp();
  const auto here = [&] { return fmt::format("arrives at barrier, line {}", line); };
  if (mine.arrived > 0) part(FaultKind::divergence, line, here());
  if (mine.in_group > 0) part(FaultKind::group_divergence, line, here());
  if (left_ > 0 || (at_barrier_ > 0 && barrier_line_ != line))
    part(FaultKind::barrier_mismatch, line, here());
  barrier_line_ = line;
  ++mine.at_barrier;
  if (++at_barrier_ < threads_) {
    scheduler_.block({name_of(Primitive::barrier), line, &barriers_, barriers_});
    return;
  }
  at_barrier_ = 0;
  for (Warp& each : warps_) each.at_barrier = 0;
  shared_.order_threads(first_thread_, threads_);
  banks_.flush();
  ++barriers_;
}

float Block::shuffle_xor(float value, int mask, int line) {
  if (mask < 0 || mask >= lanes) {
    throw Fault{FaultKind::bad_operand, line,
                fmt::format("a mask of {} names no lane of 0 to 31", mask), "a mask of 1 to 31"};
  }
  const std::size_t me = lane();
  Warp& mine = warp();
  mine.value[me] = value;
  // Values move when all have come, so that a lane may bring its next one at once.
  float result = 0;
  mine.fragment[me] = reinterpret_cast<std::uint32_t*>(&result);
  mine.address[me] = static_cast<std::uint32_t>(mask);
  meet_in_warp(Primitive::shuffle_xor, line, [](Warp& all) {
    for (std::size_t l = 0; l < lanes; ++l)
      std::memcpy(all.fragment[l], &all.value[l ^ all.address[l]], sizeof(float));
  });
  return result;
}

int Block::uniform(int value, int line) {
  warp().address[lane()] = static_cast<std::uint32_t>(value);
  meet_in_warp(Primitive::uniform, line, [line](Warp& all) {
    for (std::size_t l = 1; l < lanes; ++l) {
      if (all.address[l] == all.address[0]) continue;
      throw Fault{
          FaultKind::bad_operand, line,
          fmt::format("lane 0 has the value {}, lane {} has {}", static_cast<int>(all.address[0]),
                      l, static_cast<int>(all.address[l])),
          "uniform() of what is the same in all lanes of a warp"};
    }
  });
  return value;
}

void Block::sync_warp(int line) {
  start_clocks();
  meet_in_warp(Primitive::sync_warp, line,
               [this](Warp&) { shared_.order_threads(agent() / lanes * lanes, lanes); });
}

void Block::check_waited(int line) const {
  if (waited_[static_cast<std::size_t>(thread_index())]) return;
  throw Fault{FaultKind::early_access, line,
              "a tensor is touched while the kernels launched before this one may still run",
              "wait_for_kernels() in every thread that touches tensors, in front of it"};
}

void Block::launch_dependents(int line) const {
  if (waited_[static_cast<std::size_t>(thread_index())]) return;
  throw Fault{FaultKind::early_access, line,
              "the next kernel may start while those launched before this one still run, and waits "
              "for this one alone",
              "wait_for_kernels() in front of launch_dependents()"};
}

void Block::read_global(const void* source, int bytes, int line) {
  check_waited(line);
  memory_.check_read(source, bytes, bytes, index_, line);
}

void Block::write_global(void* target, int bytes, int line) {
  check_waited(line);
  memory_.note_write(target, bytes, index_, line);
}

void Block::add_global(float* target, const float* in, int count, bool in_order, int line) {
  check_waited(line);
  memory_.add(target, in, count, count * size_of(DType::f32), index_, in_order ? &known_ : nullptr,
              line);
}

void Block::wait_turn(const std::int32_t* turn, int position, int line) {
  check_waited(line);
  while (!memory_.turns().reached(turn, position, known_)) {
    awaited_ = turn;
    awaited_position_ = position;
    const std::uint32_t* notes = cluster_.notes_seen();
    ++awaiting_;
    scheduler_.block({name_of(Primitive::wait_turn), line, notes, *notes});
    --awaiting_;
  }
}

void Block::release_turn(std::int32_t* turn, int position, int line) {
  check_waited(line);
  memory_.note_write(turn, sizeof *turn, index_, line);
  memory_.turns().pass(turn, position, index_, known_);
}

std::string Block::describe_turn() const {
  if (awaiting_ == 0) return {};
  return fmt::format("; block {} waits until {} is {}, and it is {}", index_,
                     memory_.describe(awaited_), awaited_position_, *awaited_);
}

void Block::load_shared(void* out, std::uint32_t address, int bytes, int line) {
  shared_.read(address, bytes, out, accessor(line));
  banks_.gather(Primitive::load_shared, line, thread_index(), address, bytes);
}

void Block::store_shared(std::uint32_t address, const void* in, int bytes, int line) {
  shared_.write(address, bytes, in, accessor(line));
  banks_.gather(Primitive::store_shared, line, thread_index(), address, bytes);
}

void Block::copy_async(std::uint32_t target, const void* source, int valid_bytes, int line) {
  if (valid_bytes < 0 || valid_bytes > row_bytes) {
    throw Fault{FaultKind::bad_operand, line,
                fmt::format("{} valid bytes are asked of a copy of {}", valid_bytes, row_bytes),
                "0 to 16 bytes; clamp the count"};
  }
  if (valid_bytes > 0) check_waited(line);
  if (valid_bytes > 0) memory_.check_read(source, valid_bytes, row_bytes, index_, line);
  shared_.begin_copy(target, accessor(line));
  banks_.gather(Primitive::copy_async, line, thread_index(), target, row_bytes);
  copies_[static_cast<std::size_t>(thread_index())].issue({target, source, valid_bytes, line});
}

void Block::commit_copies() { copies_[static_cast<std::size_t>(thread_index())].commit(); }

void Block::wait_copies(int pending) {
  copies_[static_cast<std::size_t>(thread_index())].wait(
      static_cast<std::size_t>(pending), [this](const AsyncCopy& copy) {
        std::array<std::byte, row_bytes> data{};
        std::memcpy(data.data(), copy.source, static_cast<std::size_t>(copy.valid_bytes));
        shared_.complete_copy(copy.target, data.data(), accessor(copy.line));
      });
}

void Block::load_matrices(std::uint32_t* fragment, std::uint32_t address, bool transposed,
                          int line) {
  Warp& mine = warp();
  mine.fragment[lane()] = fragment;
  mine.address[lane()] = address;
  meet_in_warp(transposed ? Primitive::load_matrices_transposed : Primitive::load_matrices, line,
               [&](Warp& all) { load_rows(all, transposed, line); });
}

void Block::load_rows(Warp& warp, bool transposed, int line) {
  constexpr std::size_t size = 8;
  std::uint16_t matrix[4][size][size];
  const int first = agent() / lanes * lanes;
  for (std::size_t l = 0; l < lanes; ++l) {
    shared_.read_row(warp.address[l], matrix[l / size][l % size],
                     {first + static_cast<int>(l), line});
  }
  for (std::size_t l = 0; l < lanes; ++l) {
    const std::size_t row = l / 4, column = l % 4 * 2;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint32_t low = transposed ? matrix[i][column][row] : matrix[i][row][column],
                          high =
                              transposed ? matrix[i][column + 1][row] : matrix[i][row][column + 1];
      warp.fragment[l][i] = low | high << 16;
    }
  }
  banks_.count(transposed ? Primitive::load_matrices_transposed : Primitive::load_matrices, line,
               warp.address);
}

void Block::store_matrices(std::uint32_t address, const std::uint32_t* fragment, int line) {
  Warp& mine = warp();
  mine.stored[lane()] = fragment;
  mine.address[lane()] = address;
  const int first = agent() / lanes * lanes;
  meet_in_warp(Primitive::store_matrices, line, [&](Warp& all) {
    constexpr std::size_t rows = 8, holders = 4;  // of a matrix; lanes that hold a row
    for (std::size_t l = 0; l < lanes; ++l) {
      std::array<std::uint32_t, holders> row;
      for (std::size_t c = 0; c < holders; ++c)
        row[c] = all.stored[l % rows * holders + c][l / rows];
      shared_.write_row(all.address[l], row.data(), {first + static_cast<int>(l), line});
    }
    banks_.count(Primitive::store_matrices, line, all.address);
  });
}

void Block::multiply(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1,
                     bool is_bf16, int line) {
  WarpOperands& operands = warp().operands;
  const std::size_t me = lane();
  for (std::size_t i = 0; i < 4; ++i) operands.a[i][me] = a[i];
  operands.b[0][me] = b0;
  operands.b[1][me] = b1;
  operands.d[me] = d;
  meet_in_warp(
      is_bf16 ? Primitive::multiply_bf16 : Primitive::multiply_f16, line,
      [is_bf16](Warp& all) { is_bf16 ? multiply_bf16(all.operands) : multiply_f16(all.operands); });
}

void Block::multiply_tf32(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1,
                          int line) {
  WarpOperands& operands = warp().operands;
  const std::size_t me = lane();
  for (std::size_t i = 0; i < 4; ++i) operands.a[i][me] = a[i];
  operands.b[0][me] = b0;
  operands.b[1][me] = b1;
  operands.d[me] = d;
  // NaNs are exempt: what one is made of is nobody's number.
  for (const std::uint32_t word : {a[0], a[1], a[2], a[3], b0, b1})
    if (word & below_tf32 && (word & 0x7fffffff) <= 0x7f800000)
      throw Fault{FaultKind::bad_operand, line,
                  fmt::format("the operand {:08x} has bits that tf32 lacks", word),
                  "round_tf32 every operand: the product cuts such bits off"};
  meet_in_warp(Primitive::multiply_tf32, line,
               [](Warp& all) { flashcore::multiply_tf32(all.operands); });
}

void Block::check_block(const Warp& warp, std::uint32_t element_bytes, int line) {
  const std::uint32_t address = warp.address[0], pitch = warp.pitch[0];
  for (std::size_t l = 1; l < lanes; ++l)
    if (warp.address[l] != address || warp.pitch[l] != pitch)
      throw Fault{
          FaultKind::bad_operand, line,
          fmt::format(
              "lane 0 names the block at {} with a pitch of {}, lane {} the one at {} with {}",
              address, pitch, l, warp.address[l], warp.pitch[l]),
          "one block for all lanes of a warp"};
  if (address % 32 != 0 || pitch * element_bytes % 16 != 0)
    throw Fault{FaultKind::misaligned, line,
                fmt::format("a block at byte {} of shared memory with rows {} bytes apart",
                            address - SharedMemory::base, pitch * element_bytes),
                "blocks begin at multiples of 32 bytes, and their rows at multiples of 16"};
}

void Block::load_block(std::uint32_t* held, std::uint32_t address, std::uint32_t pitch, bool right,
                       bool transposed, int line) {
  Warp& mine = warp();
  mine.fragment[lane()] = held;
  mine.address[lane()] = address;
  mine.pitch[lane()] = pitch;
  const int first = agent() / lanes * lanes;
  meet_in_warp(Primitive::load_block, line, [&](Warp& all) {
    check_block(all, 2, line);
    std::uint16_t block[16][16];
    std::array<std::uint32_t, lanes> chunks;
    for (std::uint32_t l = 0; l < lanes; ++l) {
      const std::uint32_t row = l % 16, column = l / 16 * 8;
      chunks[l] = address + (row * pitch + column) * 2;
      shared_.read_row(chunks[l], &block[row][column], {first + static_cast<int>(l), line});
    }
    for (int r = 0; r < 16; ++r)
      for (int c = 0; c < 16; ++c) {
        const BlockPlace at = place_in_block(right ? BlockKind::right : BlockKind::left,
                                             transposed ? c : r, transposed ? r : c);
        all.fragment[at.lane][at.slot] = block[r][c];
      }
    banks_.count(Primitive::load_block, line, chunks);
  });
}

void Block::store_block(std::uint32_t address, std::uint32_t pitch, const float* held, int line) {
  Warp& mine = warp();
  mine.blocks.d[lane()] = const_cast<float*>(held);
  mine.address[lane()] = address;
  mine.pitch[lane()] = pitch;
  const int first = agent() / lanes * lanes;
  meet_in_warp(Primitive::store_block, line, [&](Warp& all) {
    check_block(all, 4, line);
    std::array<std::uint32_t, lanes> chunks;
    for (std::uint32_t half = 0; half < 2; ++half) {
      for (std::uint32_t l = 0; l < lanes; ++l) {
        // Eight lanes write two chunks of four rows, as pairs of lanes of the accumulator do.
        const std::uint32_t row = l / 2, column = half * 8 + l % 2 * 4;
        float values[4];
        for (std::uint32_t c = 0; c < 4; ++c) {
          const BlockPlace at =
              place_in_block(BlockKind::sum, static_cast<int>(row), static_cast<int>(column + c));
          values[c] = all.blocks.d[at.lane][at.slot];
        }
        chunks[l] = address + (row * pitch + column) * 4;
        shared_.write_row(chunks[l], values, {first + static_cast<int>(l), line});
      }
      banks_.count(Primitive::store_block, line, chunks);
    }
  });
}

void Block::multiply_blocks(float* d, const std::uint32_t* a, const std::uint32_t* b, bool is_bf16,
                            int line) {
  WarpBlocks& blocks = warp().blocks;
  blocks.a[lane()] = a;
  blocks.b[lane()] = b;
  blocks.d[lane()] = d;
  meet_in_warp(Primitive::multiply_blocks, line,
               [is_bf16](Warp& all) { flashcore::multiply_blocks(all.blocks, is_bf16); });
}

}  // namespace flashcore
