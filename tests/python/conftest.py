import os
import tempfile

import numpy as np
import pytest
from hypothesis import settings

# Kernels of a test run stay out of the user's cache, and go when it ends. Workers share them.
if "FLASHCORE_CACHE_DIR" not in os.environ:
    kernels = tempfile.TemporaryDirectory(prefix="flashcore_tests_", ignore_cleanup_errors=True)
    os.environ["FLASHCORE_CACHE_DIR"] = kernels.name

settings.register_profile("flashcore", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("flashcore")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def emulated_only(monkeypatch):
    """For tests whose kernels differ from those of other tests in numbers alone, and run in the
    emulator: no machine code is compiled, and a kernel has the first of its schedules, as if its
    code did not spill."""
    import flashcore as fc

    monkeypatch.setattr(fc.AttentionKernel, "compile", lambda kernel: None)
