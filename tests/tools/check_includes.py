"""Dependencies point one way: dsl <- codegen <- runtime <- python, c; templates use the dsl only.

Run by pytest, or alone: prints every include that points the other way.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What each part may include, itself aside.
ALLOWED = {
    "dsl": set(),
    "templates": {"dsl"},
    "codegen": {"dsl"},
    "runtime": {"dsl", "codegen"},
    "c": {"dsl", "codegen", "runtime", "templates"},
    "python": {"dsl", "codegen", "runtime", "templates"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# These are compiled outside the tree, behind a kernel: they name each other by bare file names.
BARE = ("codegen/prelude/", "runtime/emulator/prelude/")


def wrong_includes(root: Path) -> list[str]:
    found = []
    for part, allowed in ALLOWED.items():
        for path in sorted((root / part).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cuh", ".def"):
                continue
            name = path.relative_to(root).as_posix()
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if not match or (name.startswith(BARE) and "/" not in match[1]):
                    continue
                target = match[1].split("/")[0]
                if "/" not in match[1] or target not in ALLOWED:
                    found.append(f"{name}:{number}: {match[1]} is not spelled from the root")
                elif target != part and target not in allowed:
                    found.append(f"{name}:{number}: {part} must not include {match[1]}")
    return found


def test_includes_point_one_way() -> None:
    assert wrong_includes(ROOT) == []


def test_a_wrong_include_is_found(tmp_path: Path) -> None:
    (tmp_path / "dsl").mkdir()
    (tmp_path / "dsl" / "tile.h").write_text(
        '#include "dsl/dtype.h"\n#include "codegen/pass.h"\n#include "dtype.h"\n#include <map>\n'
    )
    assert wrong_includes(tmp_path) == [
        "dsl/tile.h:2: dsl must not include codegen/pass.h",
        "dsl/tile.h:3: dtype.h is not spelled from the root",
    ]


if __name__ == "__main__":
    wrong = wrong_includes(ROOT)
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)
