"""Kernels and schedules that are kept: what runtime/cache leaves to Python.

Modes and counts of this process, a store that machines share, the table of schedules that won.
"""
