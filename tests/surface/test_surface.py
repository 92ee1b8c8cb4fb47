"""Arguments are refused in words or give what is right: 5,000 draws of run.py in processes of their
own, which take a minute on two cores. FLASHCORE_PROPERTY_CASES and FLASHCORE_PROPERTY_FIRST draw
more, or others."""

import os
import subprocess
import sys
from pathlib import Path

CASES = int(os.environ.get("FLASHCORE_PROPERTY_CASES") or 5000)
FIRST = int(os.environ.get("FLASHCORE_PROPERTY_FIRST") or 0)


def test_what_is_not_refused_in_words_is_right(tmp_path):
    command = [sys.executable, Path(__file__).with_name("run.py")]
    command += ["--cases", str(CASES), "--first", str(FIRST)]
    environment = {"FLASHCORE_CACHE_DIR": str(tmp_path)} | os.environ
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right" in done.stdout
    assert "refused" in done.stdout
