"""The command line: what it prints, what it exits with, and that it is quick to begin."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import flashcore as fc
from flashcore.cli import flashcore as command


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHCORE_CACHE_DIR", str(tmp_path / "kernels"))
    (tmp_path / "spec.json").write_text(fc.AttentionSpec(head_dim=64).to_json())
    return tmp_path


def call(*arguments, code=0, **more):
    done = CliRunner().invoke(command, [str(a) for a in arguments], **more)
    assert done.exit_code == code, done.output + done.stderr
    return done


def data(*arguments, code=0):
    return json.loads(call(*arguments, "--json", code=code).stdout)


def process(*arguments, cwd=None, **variables):
    """The command as users start it."""
    environment = os.environ | {"PYTHONPATH": str(Path(fc.__file__).absolute().parents[1])}
    return subprocess.run([sys.executable, "-m", "flashcore", *map(str, arguments)], cwd=cwd,
                          env=environment | variables, capture_output=True, text=True)  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder with kernels, which a process of its own has made."""
    path = tmp_path_factory.mktemp("filled")
    (path / "spec.json").write_text(fc.AttentionSpec(head_dim=64).to_json())
    # Of few keys, which have no kernels for decoding.
    done = process("compile", "spec.json", "--target", "sm_80,sm_120", "--no-lse", "--json",
                   "--lengths", "1..500", cwd=path,
                   FLASHCORE_CACHE_DIR=str(path / "kernels"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # progress is for terminals
    return path / "kernels", json.loads(done.stdout)


def kernels_of(directory):
    return sorted(path.name for path in directory.glob("*.kernel"))


def test_help_opens_neither_torch_nor_nvrtc():
    program = (
        "import sys, flashcore.cli as cli; assert cli.main(['--help']) == 0;"
        "maps = open('/proc/self/maps').read();"
        "sys.exit('torch' in sys.modules or 'libnvrtc' in maps or 'libcuda' in maps)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(fc.__file__).absolute().parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"doctor" in done.stdout


def test_the_version_is_that_of_the_project():
    project = (Path(__file__).parents[2] / "CMakeLists.txt").read_text()
    assert f"project(flashcore VERSION {fc.__version__} " in project
    assert fc.__version__ in call("--version").stdout


def test_compile_puts_kernels_in_the_cache(filled):
    directory, report = filled
    assert [kernel["target"] for kernel in report["kernels"]] == ["sm_80", "sm_120"]
    assert report["directory"] == str(directory)
    assert len(kernels_of(directory)) == 2


def test_compile_puts_kernels_for_decoding_beside_them(folder, tmp_path):
    done = process("compile", folder / "spec.json", "--target", "sm_80", "--no-lse", "--lengths",
                   "8192", "--q-lengths", "1", FLASHCORE_CACHE_DIR=str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr
    listed = data("cache", "--dir", tmp_path, "ls")["kernels"]
    assert sorted(kernel["name"] for kernel in listed) == [
        "attention_decode_combine", "attention_decode_split", "attention_forward",
    ]  # fmt: skip


def test_compile_reads_the_standard_input(folder):
    text = fc.AttentionSpec(head_dim=64).to_json()
    done = call("compile", "-", "--target", "sm_80", "--no-lse", input=text)
    assert "1 kernels" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("compile",), 2, "Missing argument"),
        (("compile", "spec.json", "--lengths", "many"), 2, "1..8192"),
        (("compile", "none.json"), 3, "No such file"),
        (("compile", "spec.json", "--target", "sm_1"), 3, "one of sm_75"),
        (("compile", "spec.json", "--target", "sm_80", "--lengths", "9..2"), 3, "lengths"),
        (("show", "spec.json", "everything"), 2, "source"),
        (("show", "spec.json", "source", "--after", "simplify"), 2, "--after goes with ir"),
        (("show", "spec.json", "ir", "--schedule", "{"), 2, "no JSON"),
        (("show", "spec.json", "ir", "--schedule", '{"stage": 3}'), 3, '"stages" is close'),
        (("show", "spec.json", "ir", "--after", "nothing"), 3, "there is no such pass"),
        (("cache", "--dir", "nowhere", "ls"), 4, "there is no such folder"),
        (("cache", "show", "0123"), 4, "0 of 0 names"),
        (("cache", "prune", "--max-bytes", "lots"), 2, "500MB"),
    ],
)
def test_what_cannot_be_is_told_without_a_traceback(folder, monkeypatch, arguments, code, says):
    monkeypatch.chdir(folder)
    done = call(*arguments, code=code)
    assert says in done.stderr
    assert done.stdout == ""


def test_an_error_in_json_has_its_parts(folder):
    error = data("compile", folder / "none.json", code=3)["error"]
    assert error["kind"] == "SpecError"
    assert "No such file" in error["why"]
    assert error["fix"]


@pytest.mark.parametrize("what", ["source", "explain", "ir", "ptx", "resources"])
def test_show(folder, what):
    shown = data("show", folder / "spec.json", what, "--target", "sm_80")
    kernel = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
    wanted = {"explain": kernel.explain, "ir": kernel.ir}.get(what, lambda: getattr(kernel, what))
    assert shown == {"target": "sm_80", "kernel": kernel.name, what: wanted()}
    assert call("show", folder / "spec.json", what, "--target", "sm_80").stdout


def test_cache_lists_and_shows_what_is_there(filled):
    directory, _ = filled
    listed = data("cache", "--dir", directory, "ls")["kernels"]
    assert sorted(row["file"] for row in listed) == kernels_of(directory)
    assert {row["target"] for row in listed} == {"sm_80", "sm_120"}
    name = listed[0]["file"]
    by_beginning = data("cache", "--dir", directory, "show", name[:20])
    assert by_beginning == data("cache", "show", directory / name)
    assert by_beginning["key"] + ".kernel" == name
    assert [t["name"] for t in by_beginning["launch"]["tensors"]] == ["q", "k", "v", "o"]
    assert "__global__" in data("cache", "show", directory / name, "--source")["source"]
    text = call("cache", "show", directory / name).stdout
    assert "q: bf16 [B, H, Sq, 64]" in text
    assert "__global__" not in text


def copied(directory, to):
    to.mkdir(mode=0o700)
    for name in kernels_of(directory):
        (to / name).write_bytes((directory / name).read_bytes())
        (to / name).chmod(0o600)
    return to


def test_cache_verify_finds_and_removes_what_is_damaged(filled, tmp_path):
    directory = copied(filled[0], tmp_path / "copy")
    assert data("cache", "--dir", directory, "verify")["damaged"] == []
    first, second = kernels_of(directory)
    file = bytearray((directory / first).read_bytes())
    file[len(file) // 2] ^= 1
    (directory / first).write_bytes(file)
    os.rename(directory / second, directory / f"00{second}")  # whole, and not what it is called
    found = data("cache", "--dir", directory, "verify", code=1)["damaged"]
    assert {row["file"] for row in found} == {first, f"00{second}"}
    call("cache", "--dir", directory, "verify", "--remove", code=1)
    assert kernels_of(directory) == []
    call("cache", "--dir", directory, "verify")


def test_cache_makes_room(filled, tmp_path):
    directory = copied(filled[0], tmp_path / "copy")
    old, new = kernels_of(directory)
    os.utime(directory / old, (0, 0))
    would = data("cache", "--dir", directory, "prune", "--days", "1", "-n")
    assert [row["file"] for row in would["removed"]] == [old]
    assert kernels_of(directory) == [old, new]
    call("cache", "--dir", directory, "prune", "--days", "1")
    assert kernels_of(directory) == [new]
    (directory / "schedules.json").write_text("{}")
    assert data("cache", "--dir", directory, "du")["kinds"]["other"]["files"] == 1
    call("cache", "--dir", directory, "clear", code=1, input="n\n")
    assert kernels_of(directory) == [new]
    call("cache", "--dir", directory, "clear", "--yes")
    assert os.listdir(directory) == ["schedules.json"]


def finding(report, about):
    (found,) = [row for row in report["findings"] if row["about"] == about]
    return found


def test_doctor_says_what_is_missing(folder, monkeypatch):
    report = data("doctor")
    assert report["ok"]
    assert finding(report, "NVRTC")["state"] == "ok"
    assert str(folder / "kernels") in finding(report, "cache")["what"]
    assert "FLASHCORE_CACHE_DIR" in call("doctor").stdout

    (folder / "kernels").chmod(0o777)
    monkeypatch.setenv("FLASHCORE_CAHCE", "off")
    report = data("doctor", code=1)
    assert finding(report, "cache")["state"] == "MISSING"
    assert "mode 0777" in finding(report, "cache")["what"]
    assert '"FLASHCORE_CACHE" is close' in finding(report, "FLASHCORE_CAHCE")["fix"]


def test_doctor_opens_the_bundles_that_serve(folder, monkeypatch):
    kernels = folder / "kernels.fcb"
    call("bundle", "build", folder / "spec.json", "-o", kernels, "--target", "sm_80", "--no-lse",
         "--lengths", "64")  # fmt: skip
    monkeypatch.setenv("FLASHCORE_BUNDLES", str(kernels))
    assert "kernels.fcb: 1 kernels" in finding(data("doctor"), "bundle")["what"]
    kernels.write_bytes(b"nothing")
    assert finding(data("doctor", code=1), "bundle")["state"] == "MISSING"


def test_doctor_looks_at_folders_and_stores(folder, monkeypatch):
    process("compile", folder / "spec.json", "--target", "sm_80", "--no-lse", "--lengths", "500")
    monkeypatch.setenv("FLASHCORE_CACHE_READ", str(folder / "kernels"))
    monkeypatch.setenv("FLASHCORE_REMOTE", f"file://{folder}")
    report = data("doctor")
    assert finding(report, "folder")["what"].endswith("1 kernels, only read")
    assert finding(report, "store")["what"] == f"file://{folder}: only read"
    monkeypatch.setenv("FLASHCORE_CACHE_READ", str(folder / "absent"))
    monkeypatch.setenv("FLASHCORE_REMOTE", "nonsense://kernels")
    report = data("doctor", code=1)
    assert finding(report, "folder")["what"].endswith("it is not there")
    assert not (folder / "absent").exists()
    assert "pip install flashcore[remote]" in finding(report, "store")["fix"]


def test_doctor_knows_hosts_that_do_not_compile(folder, monkeypatch):
    monkeypatch.setenv("FLASHCORE_COMPILE", "never")
    assert finding(data("doctor", code=1), "FLASHCORE_COMPILE")["state"] == "MISSING"
    monkeypatch.setenv("FLASHCORE_COMPILE", "forbid")
    assert "any NVRTC" in finding(data("doctor"), "compiling")["what"]
    lacking = {"FLASHCORE_NVRTC": "/nowhere/libnvrtc.so"}
    done = process("doctor", "--json", **lacking, FLASHCORE_COMPILE="allow")
    assert done.returncode == 1
    assert finding(json.loads(done.stdout), "NVRTC")["state"] == "MISSING"
    assert process("doctor", **lacking, FLASHCORE_COMPILE="forbid").returncode == 0


def test_bench_and_tune_refuse_in_words_without_a_gpu(folder):
    if fc._core.gpu_target() is not None:
        pytest.skip("there is a GPU")
    assert "cannot run on a GPU here" in call("bench", code=4).stderr
    done = process("tune", folder / "spec.json", "--seconds", "1")
    assert done.returncode == 3
    assert "timing schedules" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(folder):
    environment = os.environ | {"PYTHONPATH": str(Path(fc.__file__).absolute().parents[1])}
    line = f"'{sys.executable}' -m flashcore show spec.json source --target sm_80 | head -1"
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


def test_ctrl_c_is_no_traceback(folder, monkeypatch, capsys):
    from flashcore import cli

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["flashcore.cli.cache"], "_folder", interrupted)
    assert cli.main(["cache", "ls"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_bundles_are_planned_built_signed_and_compared(folder):
    spec, ranges = folder / "spec.json", ("--target", "sm_80,sm_120", "--lengths", "1..64")
    planned = data("bundle", "plan", spec, *ranges)["kernels"]
    assert [(kernel["target"], kernel["lse"]) for kernel in planned] == [
        ("sm_80", False), ("sm_80", True), ("sm_120", False), ("sm_120", True)]  # fmt: skip
    assert "4 kernels" in call("bundle", "plan", spec, *ranges).stdout

    public = call("bundle", "keygen", folder / "secret.key").stdout.strip()
    all_of_it, one = folder / "all.fcb", folder / "one.fcb"
    made = data("bundle", "build", spec, "-o", all_of_it, *ranges)
    assert (made["kernels"], made["signer"]) == (4, None)
    call("bundle", "build", spec, "-o", one, "--target", "sm_80", "--lengths", "64", "--no-lse",
         "--sign-with", folder / "secret.key")  # fmt: skip
    assert data("bundle", "verify", one) == {"kernels": 1, "signer": public}
    assert len(data("bundle", "list", all_of_it)["kernels"]) == 4
    assert "signed by" in call("bundle", "list", one).stdout

    difference = data("bundle", "diff", all_of_it, one, code=1)
    counts = [len(difference[name]) for name in ("only_first", "only_second", "changed")]
    assert counts == [3, 0, 0]
    merged = folder / "merged.fcb"
    assert data("bundle", "merge", one, all_of_it, "-o", merged)["kernels"] == 4
    assert "the same kernels" in call("bundle", "diff", all_of_it, merged).stdout
    call("bundle", "sign", merged, "--key", folder / "secret.key")
    assert data("bundle", "verify", merged)["signer"] == public

    content = bytearray(all_of_it.read_bytes())
    content[len(content) // 2] ^= 1
    all_of_it.write_bytes(content)
    assert "all.fcb" in call("bundle", "verify", all_of_it, code=4).stderr
