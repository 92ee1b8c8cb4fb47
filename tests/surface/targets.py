"""The public functions, right arguments for each, and what their results have to be."""

import call_targets
import other_targets
import program_targets
import spec_targets
import variant_targets

TARGETS = [
    *call_targets.TARGETS,
    *variant_targets.TARGETS,
    *spec_targets.TARGETS,
    *program_targets.TARGETS,
    *other_targets.TARGETS,
]
