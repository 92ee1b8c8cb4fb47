"""What attention computes beside the rest, measured apart: a scan for the tiles that a mask shows,
and operations for each score.

Two specs that differ in this alone are timed under the same schedules, by turns. The coefficient is
the one with which predictions have the same ratio, in the median.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from typing import Any

from .. import _core
from ..cache.tuning_table import Problem
from ..specs.expression import Score
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from ..specs.variants import causal, full, prefix, softcap
from .measurements import Contest, Measurements, Say, build_kernels, is_masked, launch_of

PROBLEMS: tuple[Problem, ...] = (
    (4, 16, 512, 512), (16, 16, 512, 512), (4, 16, 1024, 1024), (8, 16, 1024, 1024),
    (2, 16, 2048, 2048), (4, 16, 2048, 2048),
)  # fmt: skip


MOST_US = 10.0  # of either coefficient
HALVINGS = 20


def scan_pairs() -> list[tuple[AttentionSpec, AttentionSpec]]:
    """A causal mask, and one that shows the same tiles and that a block has to scan for them."""
    return [
        (AttentionSpec(head_dim=dim, mask=causal()),
         AttentionSpec(head_dim=dim, mask=prefix(1) | causal()))
        for dim in (64, 128)
    ]  # fmt: skip


def score_pairs() -> list[tuple[AttentionSpec, AttentionSpec]]:
    """Plain scores, and scores that take some operations more."""
    by_distance = Score("score - 0.01 * abs(q_idx - kv_idx)")
    return [
        (AttentionSpec(head_dim=dim, mask=full()),
         AttentionSpec(head_dim=dim, mask=full(), score=score))
        for dim in (64, 128)
        for score in (softcap(30.0), by_distance)
    ]  # fmt: skip


def measure_terms(found: Measurements, contest: Contest, say: Say) -> None:
    """Adds the times of both specs of every pair."""
    pairs = [*scan_pairs(), *score_pairs()]
    schedules = {pair: common_schedules(pair[1]) for pair in pairs}
    kernels = build_kernels(
        [(spec, text) for pair in pairs for spec in pair for text in schedules[pair]],
        found.target,
        say,
    )
    for plain, more in pairs:
        texts = [t for t in schedules[plain, more] if t in kernels[plain] and t in kernels[more]]
        for problem in PROBLEMS:
            launches = [launch_of(kernels[spec][text]) for text in texts for spec in (plain, more)]
            times = contest.times(launches, plain, problem)
            for text, before, after in zip(texts, times[::2], times[1::2], strict=True):
                if math.isfinite(before) and math.isfinite(after):
                    found.added.append(
                        (plain.to_json(), more.to_json(), text, problem, before, after)
                    )


def common_schedules(more: AttentionSpec) -> list[str]:
    """Candidates of the spec that computes more whose blocks have one head."""
    texts = _core.candidate_schedules(more.to_json())
    return [text for text in texts if Schedule.from_json(text).positions_per_block == 1]


def fit_terms(
    found: Measurements, families: Mapping[str, Mapping[str, Any]], cluster_share: float
) -> dict[str, float]:
    """scan_us and score_operation_us, by the coefficients of the families as a table has them."""
    scans: list[float] = []
    scores: list[float] = []
    for plain, more, schedule, problem, before, after in found.added:
        masked = is_masked(AttentionSpec.from_json(more))
        coefficients = json.dumps(families[_core.cost_family(schedule)])
        probes = {spec: _core.CostProbe(found.multiprocessors, found.l2_bytes)
                  for spec in (plain, more)}  # fmt: skip
        for spec, probe in probes.items():
            probe.add(spec, schedule, problem)

        def predict(
            spec: str,
            us: float,
            masked: bool = masked,
            coefficients: str = coefficients,
            probes: Mapping[str, _core.CostProbe] = probes,
        ) -> float:
            term = (us, 0.0) if masked else (0.0, us)
            return probes[spec].times(coefficients, found.bytes_per_us, cluster_share, *term)[0]

        wanted = after / before * predict(plain, 0)
        low, high = 0.0, MOST_US
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if predict(more, middle) < wanted else (low, middle)
        (scans if masked else scores).append(low)
    return {
        "scan_us": round(statistics.median(scans), 4) if scans else 0.0,
        "score_operation_us": round(statistics.median(scores), 4) if scores else 0.0,
    }


__all__ = ["fit_terms", "measure_terms"]
