"""Machine code as text, by NVIDIA's disassembler where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

from ..errors import CompileError


def find_disassembler() -> str:
    """nvdisasm on PATH, in the environment of this Python, or in a CUDA toolkit."""
    places = [os.path.dirname(sys.executable)]
    places += [f"{root}/bin" for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    found = shutil.which("nvdisasm") or shutil.which("nvdisasm", path=os.pathsep.join(places))
    if found:
        return found
    raise CompileError(
        "cannot show SASS",
        f"nvdisasm is neither on PATH nor in {', '.join(places)}",
        "install CUDA's binary utilities (Debian: nvidia-cuda-toolkit), or read .ptx",
    )


def disassemble(cubin: bytes) -> str:
    tool = find_disassembler()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(f"{tool} cannot read the kernel", done.stderr.strip())
    return done.stdout
