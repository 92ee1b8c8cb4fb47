"""Whether kernels may be compiled: allowed, warned of, forbidden."""

import os
import subprocess
import sys

import pytest

import flashcore as fc


@pytest.fixture
def frozen():
    fc.freeze()
    yield
    fc.freeze(False)


def test_what_is_cached_serves_and_nothing_else(frozen):
    fc.freeze(False)
    fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
    fc.freeze()
    assert fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80").from_cache
    with pytest.raises(fc.CacheMissError) as caught:
        fc.jit(fc.AttentionSpec(head_dim=64, score=lambda s, b, h, i, j: s + 0.37), target="sm_80")
    assert "is not in the cache and compiling is forbidden" in caught.value.what
    assert os.environ["FLASHCORE_CACHE_DIR"] in caught.value.why
    assert "flashcore compile spec.json --target sm_80" in caught.value.fix
    assert isinstance(caught.value, fc.CompileError)
    with pytest.raises(fc.SpecError, match="neither True nor False"):
        fc.freeze("yes")


def run(program, **environment):
    code = "import flashcore as fc\nspec = fc.AttentionSpec(head_dim=32)\n" + program
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )


def test_a_warning_where_that_is_asked_for(tmp_path):
    program = "fc.jit(spec, target='sm_80')"
    result = run(program, FLASHCORE_COMPILE="warn", FLASHCORE_CACHE_DIR=str(tmp_path / "a"))
    assert "attention_forward for sm_80 is not in the cache and is compiled" in result.stderr
    again = run(program, FLASHCORE_COMPILE="warn", FLASHCORE_CACHE_DIR=str(tmp_path / "a"))
    assert again.stderr == ""


def test_every_place_says_why_it_did_not_help(tmp_path):
    made = fc.build_bundle(
        fc.AttentionSpec(head_dim=64), tmp_path / "a.fcb", "sm_80", lengths=64, batch=1, heads=1
    )
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    result = run(
        "fc.jit(spec, target='sm_80')",
        FLASHCORE_COMPILE="forbid",
        FLASHCORE_CACHE_DIR=str(tmp_path / "open"),
        FLASHCORE_BUNDLES=f"{made.path}:{tmp_path / 'none.fcb'}",
        FLASHCORE_LOG="off",
    )
    (why,) = [line for line in result.stderr.splitlines() if "why:" in line]
    assert f"the bundle {made.path} has no such kernel" in why
    assert "none.fcb is no bundle that can be used: it cannot be opened" in why
    assert f"the cache directory {tmp_path / 'open'} is not used" in why


def test_neither_a_directory_nor_a_bundle_needs_a_compiler(tmp_path):
    """Bundles, and directories that only kernels were brought along of, serve without NVRTC."""
    program = (
        "kernel = fc.jit(spec, target='sm_80'); print(kernel.from_cache, len(kernel.cubin) > 0)"
    )
    folder = tmp_path / "cache"
    run(program, FLASHCORE_CACHE_DIR=str(folder))
    for file in folder.iterdir():
        if file.suffix != ".kernel":
            file.unlink()
    lacking = {"FLASHCORE_NVRTC": str(tmp_path / "no such library"), "FLASHCORE_COMPILE": "forbid"}
    assert run(program, FLASHCORE_CACHE_DIR=str(folder), **lacking).stdout == "True True\n"
    made = fc.build_bundle(
        fc.AttentionSpec(head_dim=32), tmp_path / "a.fcb", "sm_80", lengths=64, batch=1, heads=1
    )
    empty = {"FLASHCORE_CACHE_DIR": str(tmp_path / "empty"), "FLASHCORE_BUNDLES": str(made.path)}
    assert run(program, **empty, **lacking).stdout == "True True\n"
    lacking.pop("FLASHCORE_COMPILE")
    assert run(program, **empty, **lacking).stdout == "True True\n"
