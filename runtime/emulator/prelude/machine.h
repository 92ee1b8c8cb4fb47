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
  void (*barrier)(int line);
  float (*shuffle_xor)(float value, int mask, int line);

  // Check an access; the caller then does it.
  void (*read_global)(const void* source, int bytes, int line);
  void (*write_global)(void* target, int bytes, int line);

  void (*load_shared)(void* out, unsigned address, int bytes, int line);
  void (*store_shared)(unsigned address, const void* in, int bytes, int line);

  void (*copy_async)(unsigned target, const void* source, int valid_bytes, int line);
  void (*commit_copies)();
  void (*wait_copies)(int pending);

  void (*load_matrices)(unsigned* fragment, unsigned address, int transposed, int line);
  void (*multiply)(float* d, const unsigned* a, unsigned b0, unsigned b1, int is_bf16, int line);

  // Opaque blocks of 16 x 16. `right` and `turned` say which operand, and how it lies in memory.
  void (*load_block)(unsigned* held, unsigned address, unsigned pitch, int right, int turned, int line);
  void (*store_block)(unsigned address, unsigned pitch, const float* held, int line);
  void (*multiply_blocks)(float* d, const unsigned* a, const unsigned* b, int is_bf16, int line);
};

}  // extern "C"
