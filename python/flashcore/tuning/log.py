"""What a search has tried, as lines of JSON that the next search reads.

    {"problem": "<digest>", "spec": ..., "shapes": ..., "target": ..., "gpu": ..., "driver": ...}
    {"problem": "<digest>", "schedule": ..., "outcome": "timed", "ratio": 1.04, "rounds": 12, ...}

A figure is worth something for the same spec, shapes, GPU, driver, compiler and code generation
only, which is what the digest is made of. Lines are appended whole, and a line that is cut off is
skipped, so a search may be killed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import CacheError
from ..specs.schedule import Schedule

STARTED = "started"
"""Written before a kernel runs for the first time. A log that ends so names what crashed."""
RIGHT = "right"
"""Written once it has run with the right results. If no timing follows, it is to be tried again."""


def key_of(schedule: Schedule) -> str:
    """Equal for equal schedules."""
    return json.dumps(json.loads(schedule.to_json()), sort_keys=True)


def digest_of(problem: Mapping[str, Any]) -> str:
    text = json.dumps(problem, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class TuningLog:
    """The trials of one problem. Without a path they are kept in memory only."""

    def __init__(self, path: str | os.PathLike[str] | None, problem: Mapping[str, Any]):
        self._path = None if path is None else Path(path)
        self._digest = digest_of(problem)
        self._known: dict[str, dict[str, Any]] = {}
        named = False
        for line in self._lines():
            if line.get("problem") != self._digest:
                continue
            if "schedule" not in line:
                named = True
                continue
            key = json.dumps(line["schedule"], sort_keys=True)
            best = self._known.get(key)
            # Of several timings, the one of most rounds; else what came last.
            if not best or line.get("rounds", 0) >= best.get("rounds", 0):
                self._known[key] = line
        for key, line in list(self._known.items()):
            if line["outcome"] == RIGHT:
                del self._known[key]
            elif line["outcome"] == STARTED:
                line["outcome"] = "crashed"
                line["why"] = "the process ended while this kernel ran for the first time"
        if not named:
            self._append(dict(problem))

    def _lines(self) -> list[dict[str, Any]]:
        if self._path is None or not self._path.exists():
            return []
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CacheError(
                f"cannot read the tuning log {self._path}", str(error), "another log="
            ) from None
        lines = []
        for row in text.splitlines():
            try:
                line = json.loads(row)
            except (ValueError, RecursionError):
                continue  # cut off when a search was killed, or written by something else
            if isinstance(line, dict):
                lines.append(line)
        return lines

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        text = json.dumps({"problem": self._digest, **line}) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                # Behind a line that was cut off, begin a new one.
                if file.tell() and not _ends_line(self._path):
                    file.write("\n")
                file.write(text)
        except OSError as error:
            raise CacheError(
                f"cannot write the tuning log {self._path}", str(error), "another log="
            ) from None

    def known(self, schedule: Schedule) -> dict[str, Any] | None:
        """What is written of the schedule: `outcome`, `why`, and if timed `ratio` and `rounds`."""
        return self._known.get(key_of(schedule))

    def all(self) -> list[tuple[Schedule, dict[str, Any]]]:
        """What is known of every schedule, in the order in which they were tried. Those that a
        newer or older FlashCore wrote with other fields are left out."""
        names = {field.name for field in fields(Schedule)}
        return [
            (Schedule(**line["schedule"]), line)
            for line in self._known.values()
            if set(line["schedule"]) == names
        ]

    def add(self, schedule: Schedule, outcome: str, **more: Any) -> None:
        line = {"schedule": json.loads(schedule.to_json()), "outcome": outcome, **more}
        if outcome not in (STARTED, RIGHT):
            self._known[key_of(schedule)] = line
        self._append(line)


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


__all__ = ["RIGHT", "STARTED", "TuningLog", "digest_of", "key_of"]
