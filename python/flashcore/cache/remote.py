"""A store of kernels that machines share, reached through fsspec: a file server, HTTP, S3, ...

The cache asks, and decides how long to wait and what to do when it fails (runtime/cache/
remote_store.h). Here are the threads that carry out what it asks for.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import threading
from dataclasses import dataclass, field
from typing import Any

from .. import _core, arguments
from ..errors import CacheError

_THREADS = 2
_IDLE_SECONDS = 3600.0  # how long a thread waits before it asks whether there still is a store
_WRITE_SECONDS = 5.0  # how long a process that ends waits for what is to be written
_JOIN_SECONDS = 0.5
_INSTALL = "pip install flashcore[remote], and what fsspec needs for the URL (s3fs, aiohttp, ...)"


@dataclass(frozen=True)
class _Remote:
    url: str
    write: bool
    signer: str | None
    timeout: float
    options: dict[str, Any] = field(default_factory=dict)

    def serve(self, store: _core.RemoteStore) -> None:
        while not store.is_closed:
            asked = store.next(_IDLE_SECONDS)
            if asked is None:
                continue
            job, name, content = asked
            found, failure = None, ""
            try:
                found = self._carry_out(name, content)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            store.answer(job, found, failure)

    def _carry_out(self, name: str, content: bytes | None) -> bytes | None:
        import fsspec

        system, root = fsspec.core.url_to_fs(self.url, **self.options)
        path = f"{root.rstrip('/')}/{name}"
        if content is None:
            with contextlib.suppress(FileNotFoundError):
                found: bytes = system.cat_file(path)
                return found
            return None
        # Stores of objects have no folders; a file system does.
        with contextlib.suppress(NotImplementedError):
            system.makedirs(root, exist_ok=True)
        system.pipe_file(path, content)
        return None


class _InUse:
    """A store that the cache asks, and the threads that answer."""

    def __init__(self, remote: _Remote):
        self.remote = remote
        self.store = _core.RemoteStore(remote.url, remote.write, remote.signer, remote.timeout)
        name = "flashcore remote store"
        self.threads = [
            threading.Thread(target=remote.serve, args=(self.store,), name=name, daemon=True)
            for _ in range(_THREADS)
        ]
        _core.set_remote(self.store)
        for thread in self.threads:
            thread.start()


_in_use: _InUse | None = None


def check(url: str, **options: Any) -> None:
    """Raises CacheError where nothing here can reach such a store."""
    if importlib.util.find_spec("fsspec") is None:
        raise CacheError(f"the store {url}", "fsspec is not installed", _INSTALL)
    import fsspec

    try:
        fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise CacheError(f"the store {url}", str(error), _INSTALL) from None


def use_remote(
    url: str | None,
    *,
    write: bool = False,
    signer: str | os.PathLike[str] | None = None,
    timeout: float = 2.0,
    **options: Any,
) -> None:
    """From now on a kernel that this machine has not is looked for in a store that machines share,
    before it is compiled; as $FLASHCORE_REMOTE.

    `url` is one of fsspec's, of a folder: "s3://bucket/kernels", "https://host/kernels",
    "file:///mnt/kernels"; `options` go to its file system. None: no store. With `write`, kernels
    that are compiled here are written to it in the background, signed with the secret key in the
    file `signer` if that is given. After `timeout` seconds without an answer a kernel counts as
    missing; what is missing is not asked for again for a minute, and a store that fails three times
    in a row is left alone for one. Where $FLASHCORE_BUNDLE_SIGNERS lists signers, only what one of
    them signed is taken. Raises CacheError.
    """
    global _in_use
    if url is None:
        _core.set_remote(None)
        _in_use = None
        return
    if not isinstance(url, str) or not url:
        fix = 'an URL of fsspec, "s3://bucket/kernels", or None'
        raise arguments.refusal("the URL of a store", url, "it is no URL", fix, CacheError)
    seconds = arguments.number("timeout", timeout, "seconds, more than 0")
    if not seconds > 0:
        why = "a request has to be given some time"
        raise arguments.refusal("timeout", timeout, why, "seconds, more than 0", CacheError)
    check(url, **options)
    file = None if signer is None else arguments.path("signer", signer, "the file of a secret key")
    _start(_Remote(url, arguments.flag("write", write), file, float(seconds), options))


def _start(remote: _Remote) -> None:
    global _in_use
    _in_use = _InUse(remote)


def flush_remote(timeout: float = 60.0) -> bool:
    """Waits until the kernels that were compiled here are in the store that :func:`use_remote`
    writes to; whether they are after `timeout` seconds."""
    return True if _in_use is None else _in_use.store.wait_until_written(float(timeout))


def use_environment() -> None:
    """Uses $FLASHCORE_REMOTE, if it is set."""
    url, writes, signer = _core.remote_variables()
    if url is not None:
        _start(_Remote(url, writes, signer, 2.0))


def _start_anew() -> None:
    # Threads do not survive a fork, nor does the state of the locks between them.
    if _in_use is not None:
        _start(_in_use.remote)


def _finish() -> None:
    if _in_use is not None:
        flush_remote(_WRITE_SECONDS)
        _core.set_remote(None)
        # Threads must not come back from the cache's code to an interpreter that has ended. One
        # that waits for the network is in Python's.
        for thread in _in_use.threads:
            thread.join(_JOIN_SECONDS)
    _core.finish_background()


os.register_at_fork(after_in_child=_start_anew)
atexit.register(_finish)

__all__ = ["check", "flush_remote", "use_environment", "use_remote"]
