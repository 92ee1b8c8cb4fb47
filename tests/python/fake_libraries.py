"""Libraries that stand in for CUDA's, from the build of the C++ tests."""

from pathlib import Path

import pytest

import flashcore as fc

_FOLDER = Path(fc.__file__).parents[2] / "tests" / "runtime"
# A driver without a GPU behind it.
DRIVER = _FOLDER / "libfake_cuda.so"
with_driver = pytest.mark.skipif(not DRIVER.exists(), reason="the C++ tests are not built")
_COMPILER = _FOLDER / "libfake_nvrtc.so"
# Environment variables of processes whose kernels run nowhere: a compiler that takes no time, or
# that of CUDA, where it was not built.
INSTANT_COMPILER = {"FLASHCORE_NVRTC": str(_COMPILER)} if _COMPILER.exists() else {}
