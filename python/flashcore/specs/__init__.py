"""What to compute, as data: specs with their masks, scores and sinks, programs, and schedules."""
