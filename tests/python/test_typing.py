"""The package is typed, and its stub of the C++ module is complete."""

import ast
from pathlib import Path

from flashcore import _core

PACKAGE = Path(__file__).parents[2] / "python" / "flashcore"


def names(body):
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def public(thing):
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_stub_names_what_the_module_has():
    stub = ast.parse((PACKAGE / "_core.pyi").read_text())
    assert names(stub.body) == public(_core)
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            assert names(node.body) - {"__init__"} == public(getattr(_core, node.name))


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()
