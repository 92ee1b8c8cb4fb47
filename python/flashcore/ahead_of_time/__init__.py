"""Kernels compiled ahead of the first call: every kernel that a spec can need, in the cache or in
a bundle."""
