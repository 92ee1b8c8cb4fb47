"""Kernels, and the steps between a call and a launch: checks, lengths, copies."""
