"""The search for a faster schedule: what may change, how it is timed and checked, the log."""
