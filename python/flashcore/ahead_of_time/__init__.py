"""Kernels before the first call: every one that a spec can reach, in the cache or in a bundle."""
