"""The host machine: its compilers, NVIDIA's disassembler, runs in the emulator, the log."""
