"""The emulator's host code: compiled once for all processes of a user, loaded where it is safe."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ml_dtypes, numpy as np
import flashcore as fc

q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 20, 64)).astype(ml_dtypes.bfloat16)
out = fc.attention(q, k, v, mask=fc.causal()).astype(float)
s = np.where(np.tri(20, dtype=bool), q[0, 0].astype(float) @ k[0, 0].T.astype(float) / 8, -np.inf)
p = np.exp(s - s.max(-1, keepdims=True))
assert abs(out - p / p.sum(-1, keepdims=True) @ v[0, 0].astype(float)).max() < 0.02
"""

COMPILER = """#!/bin/sh
case "$*" in --version) ;; *) echo compiled >> "{log}" ;; esac
exec c++ {flag} "$@"
"""


class Machine:
    """Processes with a cache of their own and a compiler that counts."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.cache = folder / "cache"
        self.log = folder / "log"
        self.use_compiler("compiler")

    def use_compiler(self, name, flag=""):
        path = self.folder / name
        path.write_text(COMPILER.format(log=self.log, flag=flag))
        path.chmod(0o755)
        self.compiler = path

    def start(self, program=PROGRAM, **environment):
        environment = {
            **os.environ,
            "FLASHCORE_CACHE_DIR": str(self.cache),
            "FLASHCORE_CXX": str(self.compiler),
            "FLASHCORE_LOG": "warn",
            **environment,
        }
        return subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True
        )

    def run(self, program=PROGRAM, **environment):
        """What the process writes to its standard error."""
        process = self.start(program, **environment)
        told = process.communicate()[1]
        assert process.returncode == 0, told
        return told

    def compilations(self):
        return self.log.read_text().count("compiled") if self.log.exists() else 0

    def entry(self):
        (path,) = self.cache.glob("*.host")
        return path


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_second_process_compiles_nothing(machine):
    assert machine.run() == ""
    assert machine.run() == ""
    assert machine.compilations() == 1
    assert machine.entry().stat().st_mode & 0o777 == 0o600


def test_processes_at_once_compile_once(machine):
    processes = [machine.start() for _ in range(5)]
    assert [(p.communicate()[1], p.returncode) for p in processes] == [("", 0)] * 5
    assert machine.compilations() == 1


def test_a_forked_child_has_what_its_parent_had(machine):
    machine.run(PROGRAM + "import os\nif os.fork() == 0:\n" + PROGRAM.replace("\n", "\n    "))
    assert machine.compilations() == 1


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-2000] ^= 1
    path.write_bytes(content)


def of_another_kernel(path):
    # Whole, and made here, but from another text.
    machine = Machine(path.parent.parent / "other")
    machine.run(
        PROGRAM.replace("(3, 1, 1, 20, 64)", "(3, 1, 1, 20, 32)").replace("/ 8", "/ 32**0.5")
    )
    path.write_bytes(machine.entry().read_bytes())


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_bit,
        of_another_kernel,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
    ],
    ids=["flipped", "other", "truncated", "empty"],
)
def test_what_is_damaged_or_foreign_is_compiled_again(machine, damage):
    machine.run()
    damage(machine.entry())
    assert "is damaged or foreign" in machine.run()
    assert machine.compilations() == 2
    assert machine.run() == ""  # and replaced
    assert machine.compilations() == 2


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_what_others_may_write_to_is_not_loaded(machine, mode):
    machine.run()
    machine.entry().chmod(mode)
    machine.run()
    assert machine.compilations() == 2
    assert machine.entry().stat().st_mode & 0o777 == 0o600
    machine.cache.chmod(0o777)
    assert "others may write to it" in machine.run()
    assert machine.compilations() == 3


def test_what_belongs_to_others_is_not_loaded(machine):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    machine.run()
    os.chown(machine.entry(), 12345, 12345)
    machine.run()
    assert machine.compilations() == 2
    assert machine.entry().stat().st_uid == 0


def test_a_link_is_not_followed(machine):
    machine.run()
    entry = machine.entry()
    entry.rename(machine.folder / "elsewhere")
    entry.symlink_to(machine.folder / "elsewhere")
    machine.run()
    assert machine.compilations() == 2
    assert not entry.is_symlink()


def test_another_compiler_is_another_key(machine):
    machine.run()
    machine.use_compiler("compiler", flag="-DANOTHER")  # at the same path
    machine.run()
    machine.use_compiler("elsewhere")
    machine.run()
    assert machine.compilations() == 3
    assert len(list(machine.cache.glob("*.host"))) == 3


def test_nothing_is_shared_when_the_cache_is_off(machine):
    for _ in range(2):
        machine.run(FLASHCORE_CACHE="off")
    assert machine.compilations() == 2
    assert not machine.cache.exists()
