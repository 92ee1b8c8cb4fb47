import os
import tempfile

# Kernels of a test run stay out of the user's cache.
os.environ.setdefault("FLASHCORE_CACHE_DIR", tempfile.mkdtemp(prefix="flashcore_docs_cache_"))
