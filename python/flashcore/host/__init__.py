"""What FlashCore finds on a machine and tells its user: compiler, disassembler, emulator, log."""
