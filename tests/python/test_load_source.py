"""Programs in C++ that are compiled when they are loaded."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import flashcore as fc

SOURCE = """#include "dsl/export.h"
#include "factor.h"

namespace fc = flashcore;

fc::Exported scaled(const fc::Arguments&) {
  fc::ProgramBuilder b("scaled");
  const fc::Extent length("N");
  const fc::Axis n = b.parallel_tiles("n", length);
  const fc::Tensor x = b.input("x", fc::DType::f32, {length});
  const fc::Tensor y = b.output("y", fc::DType::f32, {length});
  store(y(n), load(x(n)) * factor + offset);
  return {b.finish(), [](const fc::Target&) {
            return fc::Schedule{.tiles = {{"n", 32}}, .warps_m = 1};
          }};
}
FLASHCORE_EXPORT_PROGRAM(scaled)
"""


class Author:
    """A folder with a program, and how often it was compiled."""

    def __init__(self, folder):
        self.source = folder / "my program.cpp"
        self.header = folder / "factor.h"
        self.source.write_text(SOURCE)
        self.write(2)
        self._log = folder / "log"
        self.compiler = folder / "compiler"
        real = shutil.which("c++")
        self.compiler.write_text(f'#!/bin/sh\necho "$@" >>"{self._log}"\nexec {real} "$@"\n')
        self.compiler.chmod(0o700)

    def write(self, factor, offset=0):
        self.header.write_text(
            f"constexpr double factor = {factor};\nconstexpr double offset = {offset};\n"
        )

    def builds(self):
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return sum("-shared" in line and self.source.name in line for line in lines)


@pytest.fixture
def author(tmp_path, monkeypatch):
    author = Author(tmp_path)
    monkeypatch.setenv("FLASHCORE_CXX", str(author.compiler))
    return author


def scale(library):
    x = np.arange(40, dtype=np.float32)
    y = fc.jit(library.scaled(), target="sm_80")(x=x)
    return y[1] - y[0], y[0]


def test_a_source_is_compiled_once_while_nothing_it_includes_changes(author):
    assert scale(fc.load(author.source)) == (2, 0)
    assert author.builds() == 1
    assert scale(fc.load(str(author.source))) == (2, 0)
    assert author.builds() == 1
    assert repr(fc.load(author.source)) == f"<flashcore.Library {author.source}>"

    author.write(3)
    three = fc.load(author.source)
    assert scale(three) == (3, 0)
    assert author.builds() == 2
    author.source.write_text(SOURCE.replace("+ offset", "+ 1.0"))
    assert scale(fc.load(author.source)) == (3, 1)
    assert author.builds() == 3
    assert scale(three) == (3, 0)  # what was loaded before stays what it was
    author.source.write_text(SOURCE)
    assert scale(fc.load(author.source)) == (3, 0)
    assert author.builds() == 3


def test_other_processes_load_what_one_has_compiled(author):
    fc.load(author.source)
    builds = author.builds()
    code = f"import flashcore as fc; print(fc.load({str(author.source)!r}).scaled().name)"
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout == "scaled\n"
    assert author.builds() == builds


def test_the_line_that_does_not_compile_is_named(author):
    author.source.write_text(SOURCE.replace("factor + offset", "faktor"))
    with pytest.raises(fc.CompileError, match="'faktor' was not declared|‘faktor’") as caught:
        fc.load(author.source)
    assert caught.value.file == str(author.source)
    assert "faktor" in author.source.read_text().splitlines()[caught.value.line - 1]
    assert "does not compile" in caught.value.what
    author.header.unlink()
    with pytest.raises(fc.CompileError, match="factor.h: No such file"):
        fc.load(author.source)


def test_errors_of_a_program_name_its_line(author):
    author.source.write_text(SOURCE.replace("load(x(n)) * factor", "load(x(n)) * load(x(n, n))"))
    with pytest.raises(fc.SpecError) as caught:
        fc.load(author.source).scaled()
    assert caught.value.file == str(author.source)
    assert "load(x(n, n))" in author.source.read_text().splitlines()[caught.value.line - 1]


def test_without_a_compiler(author, monkeypatch):
    monkeypatch.setenv("FLASHCORE_CXX", "/nowhere/c++")
    with pytest.raises(fc.CompileError, match='the C\\+\\+ compiler "/nowhere/c\\+\\+"'):
        fc.load(author.source)
    monkeypatch.delenv("FLASHCORE_CXX")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(fc.CompileError, match="a program in C\\+\\+ needs a C\\+\\+ compiler"):
        fc.load(author.source)


def test_what_is_no_source(author):
    with pytest.raises(fc.SpecError, match="it is a header"):
        fc.load(author.header)
    with pytest.raises(fc.SpecError, match=r'(?s)there is no such file.*"my program.cpp"'):
        fc.load(author.source.with_name("my_program.cpp"))
    with pytest.raises(fc.SpecError, match="it is a directory"):
        fc.load(author.source.parent)
