import os
import tempfile

import numpy as np
import pytest
from hypothesis import settings

# Kernels of a test run stay out of the user's cache.
os.environ.setdefault("FLASHCORE_CACHE_DIR", tempfile.mkdtemp(prefix="flashcore_test_cache_"))

settings.register_profile("flashcore", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("flashcore")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
