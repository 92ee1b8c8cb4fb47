"""A sample of other projects' grids in the emulator: nothing is wrong, nothing crashes."""

import pytest
from run import SUITES, run_all, sample, suite

CASES = {"sdpa": 45, "flex": 24, "flash": 15}
LARGE = "large_values"  # scores beyond 5e8, of which no digit is left


@pytest.mark.parametrize("name", SUITES)
def test_call_sites_of_peers(name):
    chosen = [case for case in suite(name, torch=False) if case.family.name != LARGE]
    chosen = sample(chosen, CASES[name], seed=1)
    counts, refusals, failures = run_all(chosen, "cpu", torch=False, small=True, report=False)
    wrong = [f"{outcome.kind} {case}: {outcome.text}" for case, outcome in failures]
    assert not wrong, "\n".join(wrong)
    assert counts["right"] + counts["refused"] == len(chosen)
    assert counts["refused"] == refusals.total()
