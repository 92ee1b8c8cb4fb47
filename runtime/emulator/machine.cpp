#include "runtime/emulator/machine.h"

#include "runtime/emulator/block.h"

namespace flashcore {

const FlashcoreMachine& emulated_machine() {
  static constexpr FlashcoreMachine machine{
      .thread_index = [] { return Block::current().thread_index(); },
      .block_index = [](int dimension) { return Block::current().block_index(dimension); },
      .grid_extent = [](int dimension) { return Block::current().grid_extent(dimension); },
      .barrier = [](int line) { Block::current().barrier(line); },
      .shuffle_xor = [](float value, int mask,
                        int line) { return Block::current().shuffle_xor(value, mask, line); },
      .uniform = [](int value, int line) { return Block::current().uniform(value, line); },
      .sync_warp = [](int line) { Block::current().sync_warp(line); },
      .claim_tile = [](int count) { return Block::current().claim_tile(count); },
      .wait_for_kernels = [] { Block::current().wait_for_kernels(); },
      .launch_dependents = [](int line) { Block::current().launch_dependents(line); },
      .read_global = [](const void* source, int bytes,
                        int line) { Block::current().read_global(source, bytes, line); },
      .write_global = [](void* target, int bytes,
                         int line) { Block::current().write_global(target, bytes, line); },
      .add_global =
          [](float* target, const float* in, int count, int in_order, int line) {
            Block::current().add_global(target, in, count, in_order != 0, line);
          },
      .wait_turn = [](const int* turn, int position,
                      int line) { Block::current().wait_turn(turn, position, line); },
      .release_turn = [](int* turn, int position,
                         int line) { Block::current().release_turn(turn, position, line); },
      .load_shared = [](void* out, unsigned address, int bytes,
                        int line) { Block::current().load_shared(out, address, bytes, line); },
      .store_shared = [](unsigned address, const void* in, int bytes,
                         int line) { Block::current().store_shared(address, in, bytes, line); },
      .copy_async =
          [](unsigned target, const void* source, int valid_bytes, int line) {
            Block::current().copy_async(target, source, valid_bytes, line);
          },
      .commit_copies = [] { Block::current().commit_copies(); },
      .wait_copies = [](int pending) { Block::current().wait_copies(pending); },
      .load_matrices =
          [](unsigned* fragment, unsigned address, int transposed, int line) {
            Block::current().load_matrices(fragment, address, transposed != 0, line);
          },
      .store_matrices = [](unsigned address, const unsigned* fragment,
                           int line) { Block::current().store_matrices(address, fragment, line); },
      .multiply = [](float* d, const unsigned* a, unsigned b0, unsigned b1, int is_bf16,
                     int line) { Block::current().multiply(d, a, b0, b1, is_bf16 != 0, line); },
      .multiply_tf32 = [](float* d, const unsigned* a, unsigned b0, unsigned b1,
                          int line) { Block::current().multiply_tf32(d, a, b0, b1, line); },
      .load_block =
          [](unsigned* held, unsigned address, unsigned pitch, int right, int transposed,
             int line) {
            Block::current().load_block(held, address, pitch, right != 0, transposed != 0, line);
          },
      .store_block = [](unsigned address, unsigned pitch, const float* held,
                        int line) { Block::current().store_block(address, pitch, held, line); },
      .multiply_blocks =
          [](float* d, const unsigned* a, const unsigned* b, int is_bf16, int line) {
            Block::current().multiply_blocks(d, a, b, is_bf16 != 0, line);
          },
      .init_mbarrier = [](unsigned mbarrier, int arrivals,
                          int line) { Block::current().init_mbarrier(mbarrier, arrivals, line); },
      .publish_mbarriers = [] { Block::current().publish_mbarriers(); },
      .arrive = [](unsigned mbarrier, unsigned expected_bytes,
                   int line) { Block::current().arrive(mbarrier, expected_bytes, line); },
      .wait_phase = [](unsigned mbarrier, int parity,
                       int line) { Block::current().wait_phase(mbarrier, parity, line); },
      .load_box =
          [](unsigned target, const void* map, unsigned mbarrier, const int* at, int coordinates,
             int multicast, int line) {
            Block::current().load_box(target, map, mbarrier, at, coordinates, multicast != 0, line);
          },
      .store_box = [](const void* map, unsigned source, const int* at, int coordinates,
                      int line) { Block::current().store_box(map, source, at, coordinates, line); },
      .add_box =
          [](const void* map, unsigned source, const int* at, int coordinates, int in_turn,
             int line) {
            Block::current().add_box(map, source, at, coordinates, in_turn != 0, line);
          },
      .commit_stores = [] { Block::current().commit_stores(); },
      .wait_stores_read = [](int pending) { Block::current().wait_stores_read(pending); },
      .wait_stores = [](int pending) { Block::current().wait_stores(pending); },
      .fence_async = [] { Block::current().fence_async(); },
      .meet = [](int barrier, int threads,
                 int line) { Block::current().meet(barrier, threads, line); },
      .signal = [](int barrier, int threads,
                   int line) { Block::current().signal(barrier, threads, line); },
      .set_registers = [](int grow, int registers,
                          int line) { Block::current().set_registers(grow != 0, registers, line); },
      .arrive_at_cluster =
          [](int releases, int line) { Block::current().arrive_at_cluster(releases != 0, line); },
      .wait_cluster = [](int line) { Block::current().wait_cluster(line); },
      .cluster_address =
          [](unsigned address, int block, int line) {
            return Block::current().cluster_address(address, block, line);
          },
      .store_cluster = [](unsigned address, const void* in, int bytes,
                          int line) { Block::current().store_cluster(address, in, bytes, line); },
      .fence_products = [](int line) { Block::current().fence_products(line); },
      .multiply_warpgroup =
          [](float* d, int n, const unsigned* a_registers, unsigned long long a,
             unsigned long long b, int a_transposed, int transposed, int adds, int is_bf16,
             int line) {
            Block::current().multiply_warpgroup(d, a_registers,
                                                {.n = n,
                                                 .a = a,
                                                 .b = b,
                                                 .a_transposed = a_transposed != 0,
                                                 .transposed = transposed != 0,
                                                 .adds = adds != 0,
                                                 .is_bf16 = is_bf16 != 0,
                                                 .a_in_registers = a_registers != nullptr},
                                                line);
          },
      .commit_products = [](int line) { Block::current().commit_products(line); },
      .wait_products = [](int pending, int line) { Block::current().wait_products(pending, line); },
      .pin = [](float* d, int count, int line) { Block::current().pin(d, count, line); },
      .leave_array = [](const char* array, long long index,
                        int line) { Block::leave_array(array, index, line); },
  };
  return machine;
}

}  // namespace flashcore
