"""Words that docs/glossary.md has replaced do not come back, in names, comments and pages.

Run by pytest, or alone: prints every line with such a word, and the word that took its place.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A retired word, the word in its place, and the folders or files in which it may not stand.
KERNELS = ("codegen/", "dsl/", "templates/", "runtime/reference/", "runtime/emulator/prelude/")
PAGES = ("docs/", "README.md", "CONTRIBUTING.md")
RETIRED = [
    (r"combine_shares|exchange_shares|share_loops", "partial, split", (*KERNELS, *PAGES, "tests/")),
    (r"homes?\b(?! directory)|Home\b", "memory space and layout", ("codegen/", "dsl/ir/")),
    (
        r"([Ee]ach|[Ee]very|next|the last|the first) rounds?\b",
        "iteration, or wave",
        (*KERNELS, *PAGES),
    ),
    (r"land_products|landings?\b|landed", "wait, completed", (*KERNELS, *PAGES)),
    (r"await_\w+", "wait", (*KERNELS, *PAGES, "tests/cases/", "tests/codegen/golden/")),
    (
        r"(fill|release)_slot\b|pass_turn|producer_(load|store)\b|consumer_(wait|release)\b",
        "acquire, issue, wait, release",
        KERNELS,
    ),
    (
        r"give_slot|draw_tile\b|(open|close|await)_turns?\b",
        "issue, claim_tile, ping_pong",
        (*KERNELS, *PAGES, "tests/"),
    ),
    (
        r"OpCode::(part|peer|place|survey)\b|peer %|place %",
        "cluster_rank, cluster_read, segment, scan_tiles",
        (*KERNELS, "tests/"),
    ),
    (
        r"TileOrder|(GridOrder::|grid_order = )sections",
        "PersistentScheduler, grouped",
        (*KERNELS, *PAGES, "tests/"),
    ),
    (r"mergers|loop_blocks|meet_peers", "combiners, cluster_splits", (*KERNELS, *PAGES)),
    (r"scale_late|tile_order\b|alternate\s*[:=]", "names of schedule.h", (*KERNELS, *PAGES)),
    (r"survey\w*", "scan", (*KERNELS, *PAGES, "tests/", "python/")),
    (r"capped_with|(?<!soft)capped scores", "softcap, softcapped", (*KERNELS, *PAGES)),
    (r"drawn tiles|tiles? drawn|draws_tiles", "dynamic tile scheduler", (*KERNELS, *PAGES)),
]
# These name the old words on purpose.
EXEMPT = {"dsl/renamed_fields.def", "tests/dsl/json_test.cpp", "tests/tools/check_words.py"}


def retired_words(files: list[str], root: Path = ROOT) -> list[str]:
    found = []
    patterns = [(re.compile(rf"(?<!\w)(?:{word})"), new, where) for word, new, where in RETIRED]
    for name in files:
        wanted = [(p, new) for p, new, where in patterns if name.startswith(where)]
        if name in EXEMPT or not wanted:
            continue
        try:
            lines = (root / name).read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            found += [
                f"{name}:{number}: {match[0]} is called {new}"
                for pattern, new in wanted
                if (match := pattern.search(line))
            ]
    return found


def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout: there is no list of files")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_retired_words_do_not_come_back() -> None:
    assert retired_words(files()) == []


def test_a_retired_word_is_found(tmp_path: Path) -> None:
    (tmp_path / "codegen").mkdir()
    (tmp_path / "codegen" / "pass.cpp").write_text(
        "// Every round of the loop.\nOpCode::land_products\n// The rounding of a sum.\n"
    )
    assert retired_words(["codegen/pass.cpp"], tmp_path) == [
        "codegen/pass.cpp:1: Every round is called iteration, or wave",
        "codegen/pass.cpp:2: land_products is called wait, completed",
    ]


if __name__ == "__main__":
    words = retired_words(files())
    print("\n".join(words))
    sys.exit(1 if words else 0)
