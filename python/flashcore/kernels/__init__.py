"""Kernels, and what lies between a call of one and its launch: checks, lengths, copies."""
