"""Files that only their owner can have written, and locks between processes of one user."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import CacheError

_LARGEST = 64 * 2**20
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.02


def read(file: Path, private: bool) -> tuple[tuple[int, int], str]:
    """When it was written and its size, and its text. Raises OSError, FileNotFoundError if there is
    none, and UnicodeDecodeError.

    Only of a regular file: others may block for ever. A private one is no link, and it and its
    folder must belong to the user or to root, and nobody else may be able to write to them.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if private else 0)
    with open(_opened(file, flags), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is no regular file")
        if private:
            _check_owner(status, "it")
            _check_owner(os.stat(file.parent), "its folder")
        if status.st_size > _LARGEST:
            raise OSError(f"it has {status.st_size} bytes, more than the {_LARGEST} that are read")
        return (status.st_mtime_ns, status.st_size), opened.read(_LARGEST).decode()


def _opened(file: Path, flags: int) -> int:
    try:
        return os.open(file, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError("it is a symbolic link") from None
        raise


def _check_owner(status: os.stat_result, what: str) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise OSError(f"{what} belongs to user {status.st_uid}, neither to you nor to root")
    if status.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise OSError(f"others can write to {what} (mode {mode:o})")


@contextlib.contextmanager
def lock(path: Path, purpose: str) -> Iterator[None]:
    """Alone among the processes that lock this file, which is made if need be, never followed if it
    is a link, and never written to. Raises CacheError if another holds it for a minute, and
    OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise CacheError(
                        f"cannot {purpose}",
                        f"another process has held the lock {path} for {_LOCK_SECONDS:.0f} s",
                        "wait until it is done, or end it",
                    ) from None
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


__all__ = ["lock", "read"]
