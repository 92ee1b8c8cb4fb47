import shutil

import pytest

import flashcore as fc
from flashcore.host import sass


def test_without_a_disassembler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(fc.CompileError) as caught:
        sass.disassemble(b"")
    assert caught.value.what == "cannot show SASS"
    assert "nvdisasm is neither on PATH nor in" in caught.value.why
    assert ".ptx" in caught.value.fix


def test_the_disassemblers_complaint_is_passed_on(monkeypatch):
    monkeypatch.setattr(sass, "find_disassembler", lambda: shutil.which("false"))
    with pytest.raises(fc.CompileError, match="cannot read the kernel"):
        sass.disassemble(b"no cubin")


def test_sass():
    try:
        sass.find_disassembler()
    except fc.CompileError:
        pytest.skip("nvdisasm is not installed")
    text = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80").sass
    assert "HMMA.16816" in text
