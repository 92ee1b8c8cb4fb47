// One block on the emulated machine: its threads, warps, shared memory and copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/emulator/async_copies.h"
#include "runtime/emulator/bank_report.h"
#include "runtime/emulator/bulk_copies.h"
#include "runtime/emulator/clocks.h"
#include "runtime/emulator/emulator_error.h"
#include "runtime/emulator/global_memory.h"
#include "runtime/emulator/mbarriers.h"
#include "runtime/emulator/named_barriers.h"
#include "runtime/emulator/primitive.h"
#include "runtime/emulator/register_pool.h"
#include "runtime/emulator/scheduler.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor_core.h"
#include "runtime/emulator/warpgroup_products.h"

namespace flashcore {

class Cluster;

/// Blocks use the same storage one after the other.
class Block {
 public:
  /// `registers` is what a thread begins with.
  Block(Cluster& cluster, int rank, int threads, int registers, int shared_bytes,
        GlobalMemory& memory);

  /// What its cluster does with it: block `index` of the grid, counted along x first, then y, then
  /// z.
  void prepare(int index, const GridSize& grid);
  void start_clocks() { shared_.start_clocks(); }
  /// The running thread is at the end of the kernel.
  void leave();
  void finish() { banks_.flush(); }
  [[nodiscard]] std::string describe_waits() const {
    return mbarriers_.describe_waits() + named_.describe() + registers_.describe() +
           describe_turn();
  }
  [[nodiscard]] bool awaits_turn() const { return awaiting_ > 0; }
  [[nodiscard]] std::string describe_turn() const;
  [[nodiscard]] BankReport banks() const { return banks_.report(); }

  /// The block whose thread runs on this OS thread; what the primitives of machine.cpp work on.
  static Block& current();

  // The primitives, as in codegen/prelude.
  [[nodiscard]] int thread_index() const { return agent() - first_thread_; }
  [[nodiscard]] int block_index(int dimension) const {
    return position_[static_cast<std::size_t>(dimension)];
  }
  [[nodiscard]] int grid_extent(int dimension) const {
    return extent_[static_cast<std::size_t>(dimension)];
  }
  void barrier(int line);
  float shuffle_xor(float value, int mask, int line);
  int uniform(int value, int line);
  void sync_warp(int line);
  int claim_tile(int count) { return memory_.claim_tile(count); }
  void wait_for_kernels() { waited_[static_cast<std::size_t>(thread_index())] = true; }
  void launch_dependents(int line) const;
  void read_global(const void* source, int bytes, int line);
  void write_global(void* target, int bytes, int line);
  void add_global(float* target, const float* in, int count, bool in_order, int line);
  void wait_turn(const std::int32_t* turn, int position, int line);
  void release_turn(std::int32_t* turn, int position, int line);
  void load_shared(void* out, std::uint32_t address, int bytes, int line);
  void store_shared(std::uint32_t address, const void* in, int bytes, int line);
  void copy_async(std::uint32_t target, const void* source, int valid_bytes, int line);
  void commit_copies();
  void wait_copies(int pending);
  void load_matrices(std::uint32_t* fragment, std::uint32_t address, bool transposed, int line);
  void store_matrices(std::uint32_t address, const std::uint32_t* fragment, int line);
  void multiply_tf32(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1,
                     int line);
  void multiply(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, bool is_bf16,
                int line);
  void load_block(std::uint32_t* held, std::uint32_t address, std::uint32_t pitch, bool right,
                  bool transposed, int line);
  void store_block(std::uint32_t address, std::uint32_t pitch, const float* held, int line);
  void multiply_blocks(float* d, const std::uint32_t* a, const std::uint32_t* b, bool is_bf16,
                       int line);

  // Those of sm_90, in block_sm90.cpp.
  void init_mbarrier(std::uint32_t mbarrier, int arrivals, int line);
  void publish_mbarriers();
  void arrive(std::uint32_t mbarrier, std::uint32_t expected_bytes, int line);
  void wait_phase(std::uint32_t mbarrier, int parity, int line);
  /// Into all blocks of the cluster, if `multicast`.
  void load_box(std::uint32_t target, const void* map, std::uint32_t mbarrier, const int* at,
                int coordinates, bool multicast, int line);
  void store_box(const void* map, std::uint32_t source, const int* at, int coordinates, int line);
  void add_box(const void* map, std::uint32_t source, const int* at, int coordinates, bool in_turn,
               int line);
  void commit_stores();
  void wait_stores_read(int pending);
  void wait_stores(int pending);
  void fence_async();
  void meet(int barrier, int threads, int line);
  void signal(int barrier, int threads, int line);
  void set_registers(bool grow, int registers, int line);
  void arrive_at_cluster(bool releases, int line);
  void wait_cluster(int line);
  [[nodiscard]] std::uint32_t cluster_address(std::uint32_t address, int rank, int line) const;
  void store_cluster(std::uint32_t address, const void* in, int bytes, int line);
  void fence_products(int line);
  void multiply_warpgroup(float* d, const std::uint32_t* a_registers,
                          const ProductRequest::Same& what, int line);
  void commit_products(int line);
  void wait_products(int pending, int line);
  void pin(float* d, int count, int line);

  /// For an index outside of an array of registers; a GPU has no such registers, and no check.
  [[noreturn]] static void leave_array(const char* array, long long index, int line);

 private:
  static constexpr int lanes = Scheduler::warp_size;

  /// The running thread touches a tensor.
  void check_waited(int line) const;

  /// The collective operation that lanes of a warp are arriving at.
  struct Warp {
    int arrived = 0;         ///< lanes at the operation
    int at_barrier = 0;      ///< lanes at the block's barrier
    int in_group = 0;        ///< lanes at an operation of the warpgroup
    int left = 0;            ///< lanes that have left the kernel
    std::uint32_t done = 0;  ///< operations completed
    Primitive primitive = Primitive::barrier;
    int line = 0;
    std::uint32_t seen = 0;  ///< turns of a named barrier before the warp came to it

    WarpOperands operands;
    std::array<std::uint32_t*, lanes> fragment;
    std::array<const std::uint32_t*, lanes> stored;
    std::array<std::uint32_t, lanes> address;
    std::array<float, lanes> value;
    std::array<std::uint32_t, lanes> pitch;
    WarpBlocks blocks;
  };

  /// The same for the threads of a warpgroup.
  struct Group {
    Group(int first_thread, SharedMemory& shared, Clocks& clocks)
        : products(first_thread, shared, clocks) {}
    int arrived = 0, left = 0;
    std::uint32_t done = 0;
    Primitive primitive = Primitive::barrier;
    int line = 0;
    ProductRequest request;
    std::uint32_t grants = 0;  ///< of registers, before it asked for others
    WarpgroupProducts products;
  };

  template <class Act>
  void meet_in_warp(Primitive primitive, int line, const Act& act);
  template <class Act>
  void meet_in_group(Primitive primitive, int line, const Act& act);
  void check_in_group(const Warp& mine, int line, const std::string& here);
  std::uint32_t arrive_at_barrier(Primitive primitive, int barrier, int threads, int line);
  void load_rows(Warp& warp, bool transposed, int line);
  /// All lanes of a warp name one block, where the instruction can take it.
  static void check_block(const Warp& warp, std::uint32_t element_bytes, int line);
  [[noreturn]] void part(FaultKind kind, int line, const std::string& here);
  [[nodiscard]] Block& owner_of(std::uint32_t address, int line);
  void receive(std::uint32_t address, const void* in, int bytes, Accessor from);
  void check_reachable(Accessor from) const;
  void note_received(Accessor from);
  void check_received() const;
  [[nodiscard]] Warp& warp() { return warps_[static_cast<std::size_t>(thread_index() / lanes)]; }
  [[nodiscard]] Group& group(int line);
  [[nodiscard]] std::size_t lane() const {
    return static_cast<std::size_t>(thread_index() % lanes);
  }
  /// The running thread, counted over the blocks of the cluster.
  [[nodiscard]] int agent() const { return scheduler_.current(); }
  [[nodiscard]] Accessor accessor(int line) const { return {agent(), line}; }

  Cluster& cluster_;
  int threads_, first_thread_;
  int index_ = 0;  ///< counted along x first, then y, then z
  std::array<int, 3> position_{}, extent_{};
  GlobalMemory& memory_;
  Scheduler& scheduler_;
  Clocks& clocks_;
  SharedMemory shared_;
  BankCounter banks_;
  std::vector<Warp> warps_;
  KnownNotes known_;
  int awaiting_ = 0;                       ///< threads that wait for a note
  const std::int32_t* awaited_ = nullptr;  ///< the last that one of them waits for
  int awaited_position_ = 0;
  std::vector<char> waited_;  ///< by thread: for the kernels launched before this one
  std::vector<AsyncCopies> copies_;
  BulkCopies bulk_;
  Mbarriers mbarriers_;
  NamedBarriers named_;
  RegisterPool registers_;
  std::vector<std::unique_ptr<Group>> groups_;  ///< whole warpgroups

  struct Received {
    std::int32_t time = 0;
    int line = 0;
  };
  std::map<int, Received> received_;  ///< the last that a thread of another block has written here

  int at_barrier_ = 0;  ///< threads of the block
  int left_ = 0;
  int barrier_line_ = 0;
  std::uint32_t barriers_ = 0;
};

}  // namespace flashcore
