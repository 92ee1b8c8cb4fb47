"""What a run in the emulator tells while it lasts, and how it ends before its time."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
from flashcore.host import emulation


def long_arrays(rows=6000):
    return np.zeros((3, 1, 1, rows, 64), ml_dtypes.bfloat16)


@pytest.fixture
def interrupts():
    """As at a terminal: in the background of a shell, processes begin with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_an_interrupt_ends_a_run_within_a_second(target, interrupts):
    kernel = fc.jit(fc.AttentionSpec(head_dim=64), target=target)
    kernel(*long_arrays(20))  # compiled
    sent = []

    def interrupt():
        time.sleep(0.4)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        kernel(*long_arrays(20000))
    assert time.perf_counter() - sent[0] < 1
    thread.join()
    assert (kernel(*long_arrays(20)) == 0).all()  # the next run is whole


INTERRUPTED = """
import signal
import ml_dtypes, numpy as np
import flashcore as fc

# Where this process began with interrupts ignored, Python leaves them so.
signal.signal(signal.SIGINT, signal.default_int_handler)
q = np.ones((1, 1, 20, 64), ml_dtypes.bfloat16)
print("ready", flush=True)
try:
    fc.attention(q, q, q)
except KeyboardInterrupt:
    print("interrupted")
assert (fc.attention(q, q, q) == 1).all()
"""


def test_an_interrupt_at_a_terminal_does_not_spoil_a_compile(tmp_path):
    compiler, begun = tmp_path / "compiler", tmp_path / "begun"
    compiler.write_text(f'#!/bin/sh\ntouch "{begun}"\nsleep 0.5\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env={**os.environ, "FLASHCORE_CXX": str(compiler), "FLASHCORE_CACHE": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    while not begun.exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.communicate() == ("interrupted\n", "")
    assert process.returncode == 0


def test_a_long_run_is_told_once(monkeypatch):
    monkeypatch.setattr(emulation, "_told", False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            observer = emulation.Observer()
            observer.show(0, 8, 0.5)
            assert not caught or len(caught) == 1
            observer.show(1, 8, 1.0)
            observer.close()
    (warning,) = caught
    assert "FlashCore's emulator" in str(warning.message)
    assert "takes about 8 s" in str(warning.message)
    assert warning.filename == __file__


def test_a_short_run_says_nothing(monkeypatch):
    monkeypatch.setattr(emulation, "_told", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        emulation.Observer().show(4, 8, 0.6)
        fc.attention(*long_arrays(20))


def test_a_bar_only_on_a_terminal(monkeypatch):
    shown = []

    class Bar:
        def __init__(self, **options):
            shown.append(options["total"])

    monkeypatch.setitem(sys.modules, "tqdm", type("tqdm", (), {"tqdm": Bar}))
    assert emulation._bar(8) is None
    monkeypatch.setattr(sys, "stderr", type("Terminal", (), {"isatty": lambda self: True})())
    assert emulation._bar(8) is not None
    assert shown == [8]
