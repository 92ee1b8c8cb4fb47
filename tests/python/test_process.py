"""What belongs to the process: logging, environment, the cache between processes."""

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
