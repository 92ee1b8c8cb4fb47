// What a kernel on the CPU asks of the machine that runs it.
//
// This is the C interface between a compiled body and the emulator, and both sides include it. The
// compiled body sees function pointers only, so that it links to nothing and compiles fast. `line`
// is the line of the body, for messages. Every function that checks may throw through the kernel.
#pragma once

extern "C" {

struct FlashcoreMachine {
  int (*thread_index)();
  int (*block_index)(int dimension);
  int (*grid_extent)(int dimension);
  void (*barrier)(int line);
  float (*shuffle_xor)(float value, int mask, int line);
  int (*uniform)(int value, int line);
  void (*sync_warp)(int line);
  // How many tiles the blocks of the launch have taken before, of so many.
  int (*claim_tile)(int count);

  void (*wait_for_kernels)();
  void (*launch_dependents)(int line);

  // Check an access; the caller then does it.
  void (*read_global)(const void* source, int bytes, int line);
  void (*write_global)(void* target, int bytes, int line);

  // Add to elements of an output, `in_order` of the blocks' turns; notes of how far a block has come.
  void (*add_global)(float* target, const float* in, int count, int in_order, int line);
  void (*wait_turn)(const int* turn, int position, int line);
  void (*release_turn)(int* turn, int position, int line);

  void (*load_shared)(void* out, unsigned address, int bytes, int line);
  void (*store_shared)(unsigned address, const void* in, int bytes, int line);

  void (*copy_async)(unsigned target, const void* source, int valid_bytes, int line);
  void (*commit_copies)();
  void (*wait_copies)(int pending);

  void (*load_matrices)(unsigned* fragment, unsigned address, int transposed, int line);
  void (*store_matrices)(unsigned address, const unsigned* fragment, int line);
  void (*multiply)(float* d, const unsigned* a, unsigned b0, unsigned b1, int is_bf16, int line);
  void (*multiply_tf32)(float* d, const unsigned* a, unsigned b0, unsigned b1, int line);

  // Opaque blocks of 16 x 16. `right` and `turned` say which operand, and how it lies in memory.
  void (*load_block)(unsigned* held, unsigned address, unsigned pitch, int right, int transposed,
                     int line);
  void (*store_block)(unsigned address, unsigned pitch, const float* held, int line);
  void (*multiply_blocks)(float* d, const unsigned* a, const unsigned* b, int is_bf16, int line);

  void (*init_mbarrier)(unsigned mbarrier, int arrivals, int line);
  void (*publish_mbarriers)();
  void (*arrive)(unsigned mbarrier, unsigned expected_bytes, int line);
  void (*wait_phase)(unsigned mbarrier, int parity, int line);

  // `at`: as many coordinates. `map`: 128 bytes. `multicast`: into all blocks of the cluster.
  void (*load_box)(unsigned target, const void* map, unsigned mbarrier, const int* at,
                   int coordinates, int multicast, int line);
  void (*store_box)(const void* map, unsigned source, const int* at, int coordinates, int line);
  void (*add_box)(const void* map, unsigned source, const int* at, int coordinates, int in_turn,
                  int line);
  void (*commit_stores)();
  void (*wait_stores_read)(int pending);
  void (*wait_stores)(int pending);
  void (*fence_async)();

  void (*meet)(int barrier, int threads, int line);
  void (*signal)(int barrier, int threads, int line);
  void (*set_registers)(int grow, int registers, int line);

  void (*arrive_at_cluster)(int releases, int line);
  void (*wait_cluster)(int line);
  unsigned (*cluster_address)(unsigned address, int block, int line);
  void (*store_cluster)(unsigned address, const void* in, int bytes, int line);

  // d[n / 8][4]. `a_registers` is null where a lies in shared memory.
  void (*fence_products)(int line);
  void (*multiply_warpgroup)(float* d, int n, const unsigned* a_registers, unsigned long long a,
                             unsigned long long b, int a_transposed, int transposed, int adds,
                             int is_bf16, int line);
  void (*commit_products)(int line);
  void (*wait_products)(int pending, int line);
  void (*pin)(float* d, int count, int line);

  // The body is about to use `array`, as C++ writes its type, at an index outside of it.
  void (*leave_array)(const char* array, long long index, int line);
};

}  // extern "C"
