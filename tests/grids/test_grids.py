"""A sample of other projects' grids in the emulator: nothing is wrong, nothing crashes, and nothing
is refused but what docs/compatibility.md lists, with as many cases as it says.

The whole grids take a GPU: see run.py.
"""

import collections
from pathlib import Path

import pytest
from cases import SUITES, sample, suite
from run import run_all

CASES = {"sdpa": 60, "flex": 35, "flash": 30}
MISSING = "missing"  # the family of what a peer has and FlashCore has not
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def rows(heading):
    """Of the table under a heading, without its own headings."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", SUITES)
def test_call_sites_of_peers(name):
    chosen = [case for case in suite(name, torch=False) if case.family.name != MISSING]
    chosen = sample(chosen, CASES[name], seed=1)
    tally = run_all(chosen, torch=False)
    wrong = [f"{outcome.kind} {case}: {outcome.text}" for case, outcome in tally.failures]
    assert not wrong, "\n".join(wrong)
    assert not tally.refusals
    assert tally.counts["right"] == len(chosen)


def test_what_is_refused_is_listed_with_its_reason():
    listed = collections.Counter()
    for name, refused, count, reason in rows("What is refused"):
        listed[name, refused.strip("`")] = int(count)
        assert len(reason) > 20
    found = collections.Counter()
    for name in SUITES:
        cases = [case for case in suite(name, torch=False) if case.family.name == MISSING]
        tally = run_all(cases, torch=False)
        assert not tally.failures
        assert tally.counts["refused"] == len(cases)
        for text, count in tally.refusals.items():
            found[name, text.split(": ", 1)[1]] = count
    assert found == listed


def test_the_size_of_the_grids():
    refused = collections.Counter()
    for name, _, count, _ in rows("What is refused"):
        refused[name] += int(count)
    for name, _, size, count in rows("The grids"):
        assert int(size.replace(",", "")) == len(suite(name, torch=True))
        assert int(count) == refused.pop(name) <= int(size.replace(",", "")) / 100
    assert not refused
