"""A store of kernels that machines share: each process here is a machine of its own."""

import functools
import http.server
import os
import subprocess
import sys
import threading

import pytest

import flashcore as fc

PROGRAM = """
import flashcore as fc
kernel = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
now = fc.cache_stats()
print(now.remote, now.compiled)
"""


def run(machine, program=PROGRAM, **environment):
    """What a process says that has a cache directory of its own."""
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "FLASHCORE_CACHE_DIR": str(machine),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=variables | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr


def objects_in(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def store(tmp_path):
    """A folder that holds one kernel, compiled elsewhere."""
    folder = tmp_path / "store"
    url = f"file://{folder}"
    assert run(tmp_path / "builder", FLASHCORE_REMOTE=url, FLASHCORE_REMOTE_MODE="write") == (
        "0 1",
        "",
    )
    assert len(objects_in(folder)) == 2
    return folder


def test_one_machine_compiles_for_all(store, tmp_path):
    before = objects_in(store)
    assert run(tmp_path / "a", FLASHCORE_REMOTE=f"file://{store}") == ("1 0", "")
    # Kept like what was compiled here: the store is not asked again.
    assert run(tmp_path / "a") == ("0 0", "")
    assert objects_in(store) == before


def test_readers_leave_the_store_as_it_is(tmp_path):
    assert run(tmp_path / "a", FLASHCORE_REMOTE=f"file://{tmp_path / 'store'}")[0] == "0 1"
    assert not (tmp_path / "store").exists()


def test_where_compiling_is_forbidden_it_serves(store, tmp_path):
    url = f"file://{store}"
    assert run(tmp_path / "a", FLASHCORE_REMOTE=url, FLASHCORE_COMPILE="forbid")[0] == "1 0"
    program = f"""
import flashcore as fc
fc.use_remote({url!r})
fc.freeze()
try:
    fc.jit(fc.AttentionSpec(head_dim=32), target="sm_80")
except fc.CacheMissError as error:
    print(error.why)
"""
    why, _ = run(tmp_path / "b", program)
    assert f"the store {url} has no " in why


def test_over_http(store, tmp_path):
    pytest.importorskip("aiohttp")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(store))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert run(tmp_path / "a", FLASHCORE_REMOTE=url)[0] == "1 0"
        missing = PROGRAM.replace("head_dim=64", "head_dim=32")
        assert run(tmp_path / "a", missing, FLASHCORE_REMOTE=url) == ("0 1", "")
        server.shutdown()


def test_a_store_that_does_not_answer_costs_its_time_out(tmp_path):
    program = """
import time
import flashcore as fc
import fsspec

class Slow(fsspec.AbstractFileSystem):
    protocol = "slow"
    def cat_file(self, path, **_):
        time.sleep(100)

fsspec.register_implementation("slow", Slow)
fc.use_remote("slow://kernels", timeout=0.1)
start = time.perf_counter()
for dim in (16, 32, 64, 80):
    fc.jit(fc.AttentionSpec(head_dim=dim), target="sm_80")
print(fc.cache_stats().compiled, time.perf_counter() - start < 60)
"""
    said, warned = run(tmp_path / "a", program)
    assert said == "4 True"
    assert "the store slow://kernels is left alone for 60 s, as it failed 3 times" in warned
    assert "no answer in 100 ms" in warned


def test_where_signers_are_listed_only_their_kernels_serve(store, tmp_path):
    key = fc.make_signing_key(tmp_path / "key")
    url = f"file://{store}"
    reading = {"FLASHCORE_REMOTE": url, "FLASHCORE_BUNDLE_SIGNERS": key}
    said, warned = run(tmp_path / "a", **reading)
    assert said == "0 1"
    assert "it is not signed" in warned
    writing = {"FLASHCORE_REMOTE_MODE": "write", "FLASHCORE_REMOTE_SIGNER": str(tmp_path / "key")}
    assert run(tmp_path / "b", FLASHCORE_REMOTE=url, **writing)[0] == "1 0"  # it is there already
    for file in store.iterdir():
        file.unlink()
    assert run(tmp_path / "c", FLASHCORE_REMOTE=url, **writing)[0] == "0 1"
    assert run(tmp_path / "d", **reading) == ("1 0", "")


def test_a_child_has_threads_of_its_own(store, tmp_path):
    program = f"""
import os
import flashcore as fc
fc.use_remote("file://{store}")
child = os.fork()
if child == 0:
    fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
    print(fc.cache_stats().remote, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    assert run(tmp_path / "a", program)[0] == "1"


def test_wrong_arguments_are_refused(tmp_path):
    for url in ("", 7):
        with pytest.raises(fc.CacheError, match="it is no URL"):
            fc.use_remote(url)
    with pytest.raises(fc.CacheError, match="has to be given some time"):
        fc.use_remote("memory://kernels", timeout=0)
    with pytest.raises(fc.CacheError):
        fc.use_remote("memory://kernels", write=True, signer=tmp_path / "absent")
    assert fc.flush_remote()  # none of them is in use


def test_without_fsspec_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(fc.CacheError, match=r"pip install flashcore\[remote\]"):
        fc.use_remote("memory://kernels")
