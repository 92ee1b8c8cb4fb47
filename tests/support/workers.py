"""Cases judged in child processes, so that a crash or a hang is one case's failure and not the end.

A parent sends each child a task a line, as JSON, and the child answers each with a line. Tasks come
in shares: those of one share go to one child, one after another.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import json
import os
import queue
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_START_SECONDS = 300  # of a child's imports, while others start beside it
_LAST_LINES = 12  # of what a child said before it ended


@dataclass
class Answer:
    task: Any
    outcome: Any = None
    error: str = ""
    """How the child ended, or what the test itself raised; then there is no outcome."""


def serve(judge: Callable[[Any], Any]) -> None:
    """The child's side: answers tasks until there are no more. What else the process reads or
    prints is kept apart from them."""
    faulthandler.enable()
    tasks = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    answers.write("ready\n")
    for line in tasks:
        try:
            told = {"outcome": judge(json.loads(line))}
        except Exception:
            told = {"error": "the test itself: " + traceback.format_exc(limit=-3)}
        answers.write(json.dumps(told) + "\n")


class _Ended(Exception):
    """A child did not answer; how it ended."""


class _Child:
    """One process. Nothing can be judged if it does not start: that is an error of the run."""

    def __init__(self, command: Sequence[str]):
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._said: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._listen)
        ]
        for reader in self._readers:
            reader.start()

    def start(self) -> None:
        try:
            self._line(_START_SECONDS)
        except _Ended as error:
            raise RuntimeError(f"{self._process.args} does not start: {error}") from None

    def ask(self, task: Any, seconds: float) -> Any:
        try:
            self._process.stdin.write(json.dumps(task) + "\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            raise self._ended("crashed") from None
        return json.loads(self._line(seconds))

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _line(self, seconds: float) -> str:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self._process.kill()
            raise self._ended(f"hangs for {seconds:g} s") from None
        if line is None:
            raise self._ended("crashed")
        return line

    def _ended(self, how: str) -> _Ended:
        self._process.wait()
        for reader in self._readers:
            reader.join(_START_SECONDS)
        return _Ended(f"{how}, exit {self._process.returncode}: {''.join(self._said)}")

    def _read(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            self._lines.put(line)
        self._lines.put(None)

    def _listen(self) -> None:
        self._said.extend(self._process.stderr)  # type: ignore[arg-type]


def run(
    command: Sequence[str],
    shares: Iterable[Sequence[Any]],
    jobs: int,
    seconds: float,
    until: float = float("inf"),
    renew: bool = False,
) -> Iterator[Answer]:
    """Answers as they come from `jobs` children that `command` starts.

    A task may take `seconds`. After `until`, by the monotonic clock, no more tasks begin. With
    `renew`, every share has a child of its own.
    """
    left = iter(shares)
    taking = threading.Lock()
    answers: queue.Queue[Answer | BaseException | None] = queue.Queue()
    stopped = threading.Event()

    def tasks() -> Iterator[tuple[Any, bool]]:
        """With whether a share begins."""
        while True:
            with taking:
                share = next(left, None)
            if share is None:
                return
            for i, task in enumerate(share):
                if stopped.is_set() or time.monotonic() >= until:
                    return
                yield task, i == 0

    def work() -> None:
        child: _Child | None = None
        try:
            for task, begins in tasks():
                if child is not None and begins and renew:
                    child.close()
                    child = None
                try:
                    if child is None:
                        child = _Child(command)
                        child.start()
                    answers.put(Answer(task, **child.ask(task, seconds)))
                except _Ended as error:
                    child = None
                    answers.put(Answer(task, error=str(error)))
            if child is not None:
                child.close()
            answers.put(None)
        except BaseException as error:
            answers.put(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    working = jobs
    try:
        while working:
            answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            if answer is None:
                working -= 1
            else:
                yield answer
    finally:
        stopped.set()
