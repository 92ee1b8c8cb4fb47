"""What belongs to the process: logging, environment, the cache between processes."""

import os
import subprocess
import sys

import flashcore as fc


def test_the_environment_is_documented():
    names = [name for name, _, _ in fc.environment()]
    assert "FLASHCORE_CACHE_DIR" in names
    assert all(name.startswith("FLASHCORE_") for name in names)
    assert all(fallback and meaning for _, fallback, meaning in fc.environment())


def test_a_hook_receives_the_log_and_nothing_is_printed(capfd, tmp_path, monkeypatch):
    messages = []
    fc.set_log_hook(lambda level, text: messages.append((level, text)))
    try:
        fc.jit(fc.AttentionSpec(head_dim=40), target="sm_86")
    finally:
        fc.set_log_hook(None)
    assert any("attention_forward for sm_86" in text for _, text in messages)
    assert capfd.readouterr() == ("", "")


def test_an_exception_in_the_hook_changes_nothing():
    def hook(level, text):
        raise KeyError(text)

    fc.set_log_hook(hook)
    try:
        fc.jit(fc.AttentionSpec(head_dim=48), target="sm_86")
    finally:
        fc.set_log_hook(None)


PROGRAM = """
import flashcore as fc
kernel = fc.jit(fc.AttentionSpec(head_dim=56), target="sm_86")
print(kernel.from_cache, kernel.compile_ms > 0)
"""


def test_another_process_takes_the_kernel_from_the_cache():
    first, second = (
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert first.stdout == "False True\n"
    assert second.stdout == "True False\n"


FORKS = """
import itertools, os, sys, threading, time
import ml_dtypes, numpy as np
import flashcore as fc

q = np.ones((1, 1, 20, 64), ml_dtypes.bfloat16)
numbers = itertools.count(1)
stop = False


def kernel_for(number):
    # A window of its own makes it another kernel.
    return fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.sliding_window(number)), target="sm_86")


def work():
    while not stop:
        kernel = kernel_for(next(numbers))
        kernel(q, q, q)
        fc.attention(q, q, q, mask=lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)
        len(kernel.cubin)


threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
children = []
for child in range(3):
    time.sleep(0.15)
    pid = os.fork()
    if pid == 0:
        kernel = kernel_for(1000 + child)
        out = kernel(q, q, q)
        fc.attention(q, q, q, mask=lambda b, h, q_idx, kv_idx: q_idx > kv_idx - 5)
        right = bool((out == 1).all()) and len(kernel.cubin) > 0
        os._exit(0 if right else 1)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children])
stop = True
sys.stdout.flush()
os._exit(0)
"""


def test_a_child_forked_while_threads_compile_compiles_itself(tmp_path):
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        env={**os.environ, "FLASHCORE_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.stdout == "[0, 0, 0]\n", result.stderr


FORKS_AROUND_A_LOAD = """
import os, sys
import ml_dtypes, numpy as np
import flashcore as fc

q = np.ones((1, 1, 20, 64), ml_dtypes.bfloat16)


def use(window):
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.sliding_window(window)), target="sm_86")
    assert (kernel(q, q, q) == 1).all() and len(kernel.cubin) > 0


def forked(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def compiled_by(work):
    before = fc.cache_stats().compiled
    work()
    return fc.cache_stats().compiled - before


def first_child():
    assert compiled_by(lambda: use(1)) == 1  # the first of all: nobody has started anything


def child():
    kept = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.sliding_window(1)), target="sm_86")
    assert compiled_by(lambda: use(1)) == 0
    assert compiled_by(lambda: (kernel(q, q, q), kernel.cubin)) == 0  # the parent's object
    assert compiled_by(lambda: use(next_one)) == 1
    forked(lambda: use(next_one))
    forked(lambda: use(100 + next_one))


forked(first_child)
assert compiled_by(lambda: use(1)) == 0  # the child has kept it
kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.sliding_window(1)), target="sm_86")
for next_one in range(2, 4):
    forked(child)
    assert compiled_by(lambda: use(next_one)) == 0
print("right")
"""


def test_children_forked_before_and_after_a_load_have_its_kernel_and_compile_others(tmp_path):
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS_AROUND_A_LOAD],
        env={**os.environ, "FLASHCORE_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.stdout == "right\n", result.stderr


CROWD = """
import sys, threading
import flashcore as fc

spec = fc.AttentionSpec(head_dim=64)
threads = int(sys.argv[1])
kernels = []
asking = [
    threading.Thread(target=lambda: kernels.append(fc.jit(spec, target="sm_86")))
    for _ in range(threads)
]
print("ready", flush=True)
sys.stdin.readline()
for thread in asking:
    thread.start()
for thread in asking:
    thread.join()
assert len(kernels) == threads and len({kernel.cubin for kernel in kernels}) == 1
print(fc.cache_stats().compiled)
"""


def test_processes_and_threads_at_once_compile_one_kernel(tmp_path):
    processes, threads = (64, 64) if os.environ.get("FLASHCORE_HEAVY") else (4, 64)
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", CROWD, str(threads)],
            env={**os.environ, "FLASHCORE_CACHE_DIR": str(tmp_path / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    for process in asking:
        assert process.stdout.readline() == "ready\n"
    for process in asking:
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=250)[0] for process in asking]
    assert sorted(told) == ["0\n"] * (processes - 1) + ["1\n"]
