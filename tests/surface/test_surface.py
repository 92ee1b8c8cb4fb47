"""Arguments are refused in words or give what is right: draws of run.py, in their own process."""

import os
import subprocess
import sys
from pathlib import Path

CASES = int(os.environ.get("FLASHCORE_PROPERTY_CASES") or 300)
FIRST = int(os.environ.get("FLASHCORE_PROPERTY_FIRST") or 0)


def test_what_is_not_refused_in_words_is_right():
    command = [sys.executable, Path(__file__).with_name("run.py")]
    command += ["--cases", str(CASES), "--first", str(FIRST)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right" in done.stdout
    assert "refused" in done.stdout
