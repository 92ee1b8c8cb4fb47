"""Programs in C++, compiled by the host's compiler when they are loaded."""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from pathlib import Path

from .. import _core

SOURCES = (".cpp", ".cc", ".cxx")
_opened: dict[str, ctypes.CDLL] = {}


def open_source(path: str) -> ctypes.CDLL:
    """The library of a source file, as it and what it includes are now. The same files give the
    same library, in this process and, by way of the cache, in others. Raises CompileError."""
    package = Path(_core.__file__).parent
    names = (package / "lib" / "libraries.txt").read_text().split()
    libraries = [name if name.startswith("-") else str(package / "lib" / name) for name in names]
    code = _core.build_host_library(path, [str(package / "include")], libraries)
    digest = hashlib.blake2b(code, digest_size=16).hexdigest()
    if digest not in _opened:
        # The loader takes a path that it knows for the library that it has. The file may go once it
        # is loaded.
        with tempfile.TemporaryDirectory(prefix="flashcore-") as folder:
            file = Path(folder) / f"lib{Path(path).stem}-{digest}.so"
            file.write_bytes(code)
            _opened[digest] = ctypes.CDLL(str(file))
    return _opened[digest]


__all__ = ["SOURCES", "open_source"]
