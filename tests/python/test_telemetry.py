"""What the cache says of itself."""

import os
import subprocess
import sys

import pytest

import flashcore as fc

PROGRAM = """
import sys
import flashcore as fc
spec = fc.AttentionSpec(head_dim=64)
first = fc.jit(spec, target="sm_80")
again = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
fc.freeze()
try:
    fc.jit(fc.AttentionSpec(head_dim=32), target="sm_80")
except fc.CacheMissError:
    pass
now = fc.cache_stats()
print(now.memory, now.bundle, now.directory, now.compiled, now.failed)
print(now.load_ms > 0, now.compile_ms > 0, now.bytes_loaded > 1000, now.bytes_compiled > 1000)
"""


def run(**environment):
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_where_kernels_came_from(tmp_path):
    counts, sizes = run(FLASHCORE_CACHE_DIR=str(tmp_path))
    failed = counts.split()[-1]  # one for each schedule that was tried
    assert int(failed) >= 1
    assert counts == f"1 0 0 1 {failed}"
    assert sizes == "False True False True"
    counts, sizes = run(FLASHCORE_CACHE_DIR=str(tmp_path))
    assert counts == f"1 0 1 0 {failed}"
    assert sizes == "True False True False"


def test_from_a_bundle(tmp_path):
    made = fc.build_bundle(
        fc.AttentionSpec(head_dim=64), tmp_path / "a.fcb", "sm_80", lengths=64, batch=1, heads=1
    )
    counts, sizes = run(FLASHCORE_CACHE_DIR=str(tmp_path / "c"), FLASHCORE_BUNDLES=str(made.path))
    memory, bundle, directory, compiled, _ = (int(count) for count in counts.split())
    assert (memory + bundle, directory, compiled) == (2, 0, 0)
    assert bundle >= 1
    assert sizes == "True False True False"


def test_prometheus_reads_it():
    text = fc.prometheus()
    assert text.endswith("\n")
    samples = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            assert line.endswith(" counter")
        elif not line.startswith("# HELP "):
            name, value = line.rsplit(" ", 1)
            samples[name] = float(value)
    now = fc.cache_stats()
    assert samples['flashcore_kernels_total{source="compiled"}'] == now.compiled
    assert samples["flashcore_compile_seconds_total"] == now.compile_ms / 1e3
    assert len(samples) == 11


def test_events_tell_what_happened_to_kernels():
    events = []
    fc.set_event_hook(events.append)
    try:
        first = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
        second = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
        assert [event.kernel for event in events] == ["attention_forward for sm_80"] * 2
        assert events[0].kind in ("memory", "bundle", "directory", "compiled")
        assert events[1].kind in ("memory", "bundle")
        assert events[0].ms > 0
        assert first.cubin == second.cubin
        fc.set_event_hook(lambda event: 1 / 0)  # what it raises is nobody's
        fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
    finally:
        fc.set_event_hook(None)
    with pytest.raises(fc.SpecError, match="it cannot be called"):
        fc.set_event_hook("print")


def test_folders_serve_and_are_counted(tmp_path):
    run(FLASHCORE_CACHE_DIR=str(tmp_path / "image"))
    before = sorted(file.name for file in (tmp_path / "image").iterdir())
    serving = {"FLASHCORE_CACHE_READ": f"{tmp_path / 'absent'}:{tmp_path / 'image'}"}
    counts, sizes = run(FLASHCORE_CACHE_DIR=str(tmp_path / "own"), **serving)
    assert counts.split()[:4] == ["1", "0", "0", "0"]
    assert sizes == "True False True False"
    assert sorted(file.name for file in (tmp_path / "image").iterdir()) == before
