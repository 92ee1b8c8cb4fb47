"""The packages inside flashcore depend on each other one way, and each says what it holds."""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "flashcore"

# What modules may import of other packages while they are loaded. An import inside a function may
# point back: everything is loaded by then. All may use the modules of BASE.
BASE = {"_core", "arguments", "arrays", "errors"}
BETWEEN = {"pytorch.seam", "pytorch.tensors"}
ALLOWED = {
    "tracing": set(),
    "host": set(),
    "pytorch.seam": set(),
    "pytorch.tensors": set(),
    "specs": {"tracing", "host"} | BETWEEN,
    "cache": {"specs"},
    "kernels": {"specs", "cache", "host"} | BETWEEN,
    "ahead_of_time": {"specs", "cache", "kernels"},
    "interfaces": {"specs", "kernels"} | BETWEEN,
    "pytorch": {"specs", "kernels", "interfaces"},
    "tuning": {"specs", "cache", "kernels"},
}
PACKAGES = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())


def imported(module, text):
    """The modules of flashcore that this one, "kernels.copies" say, imports while it is loaded."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            source = [*module.split(".")[: -node.level], *filter(None, [node.module])]
            if not source or source[0] in PACKAGES and len(source) == 1:
                yield from (".".join([*source, name.name]) for name in node.names)
            else:
                yield ".".join(source)


def wrong_imports(module, text):
    """Those of them that point to another package than ALLOWED says."""
    own = module.split(".")[0]
    allowed = BASE | ALLOWED.get(module, ALLOWED[own] | {own})
    return [
        target
        for target in imported(module, text)
        if target not in allowed and target.split(".")[0] not in allowed
    ]


def test_imports_point_one_way():
    packages = [package for package in PACKAGES if package != "cli"]
    assert set(packages) == {part.split(".")[0] for part in ALLOWED}
    for package in packages:
        for file in sorted((PACKAGE / package).glob("*.py")):
            assert wrong_imports(f"{package}.{file.stem}", file.read_text()) == []


def test_a_wrong_import_is_found():
    upwards = "from ..kernels.copies import launch"
    assert wrong_imports("specs.spec", upwards) == ["kernels.copies"]
    assert wrong_imports("kernels.copies", "from ..pytorch import calls\n") == ["pytorch.calls"]
    assert wrong_imports("kernels.copies", "from ..pytorch import seam\nfrom . import kernel") == []
    assert wrong_imports("pytorch.seam", "def attention():\n    from . import calls\n") == []


def test_every_package_says_what_it_holds():
    for package in PACKAGES:
        assert ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text()))


def test_the_page_on_the_architecture_lists_every_package():
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text()
    listed = re.search(r"^    python/ .*\n((?:      .*\n)+)", page, re.MULTILINE)
    assert listed
    assert sorted(re.findall(r"^      (\w+)/", listed[1], re.MULTILINE)) == PACKAGES
