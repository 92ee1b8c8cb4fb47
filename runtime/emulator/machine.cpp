#include "runtime/emulator/machine.h"

#include "runtime/emulator/block.h"

namespace flashcore {

const FlashcoreMachine& emulated_machine() {
  static constexpr FlashcoreMachine machine{
      .thread_index = [] { return Block::current().thread_index(); },
      .block_index = [](int dimension) { return Block::current().block_index(dimension); },
      .barrier = [](int line) { Block::current().barrier(line); },
      .shuffle_xor = [](float value, int mask,
                        int line) { return Block::current().shuffle_xor(value, mask, line); },
      .read_global = [](const void* source, int bytes,
                        int line) { Block::current().read_global(source, bytes, line); },
      .write_global = [](void* target, int bytes,
                         int line) { Block::current().write_global(target, bytes, line); },
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
      .multiply = [](float* d, const unsigned* a, unsigned b0, unsigned b1, int is_bf16,
                     int line) { Block::current().multiply(d, a, b0, b1, is_bf16 != 0, line); },
      .load_block =
          [](unsigned* held, unsigned address, unsigned pitch, int right, int turned, int line) {
            Block::current().load_block(held, address, pitch, right != 0, turned != 0, line);
          },
      .store_block =
          [](unsigned address, unsigned pitch, const float* held, int line) {
            Block::current().store_block(address, pitch, held, line);
          },
      .multiply_blocks =
          [](float* d, const unsigned* a, const unsigned* b, int is_bf16, int line) {
            Block::current().multiply_blocks(d, a, b, is_bf16 != 0, line);
          },
  };
  return machine;
}

}  // namespace flashcore
