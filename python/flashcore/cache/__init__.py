"""The parts of the cache of kernels and schedules that are in Python; the rest is runtime/cache.

Modes and counts of this process, a store that machines share, the table of schedules that won.
"""
