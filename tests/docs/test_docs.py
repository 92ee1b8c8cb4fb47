"""The documentation is true: its code runs and prints what it says, its tables and links are right.

FLASHCORE_UPDATE=1 writes what the code prints into the `text output` blocks instead of comparing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import ROOT, Block, blocks, files, prose

import flashcore as fc

UPDATE = os.environ.get("FLASHCORE_UPDATE", "0") not in ("", "0")
DOCUMENTS = [path.relative_to(ROOT).as_posix() for path in files()]


def can_run(block: Block) -> bool:
    if "torch" not in block.words and "gpu" not in block.words:
        return True
    try:
        import torch
    except ImportError:
        return False
    return "gpu" not in block.words or torch.cuda.is_available()


def compile_cpp(block: Block, folder: Path, is_loaded: bool) -> None:
    """Writes the file, and checks it unless Python code of the page loads it, which compiles it."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    source = folder / block.words[0]
    source.write_text(block.text)
    if is_loaded:
        return
    command = [compiler, "-std=c++20", f"-I{ROOT}", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"line {block.line}: {done.stderr}"


def run_python(block: Block, names: dict[str, object], file: str) -> str:
    # Empty lines in front give tracebacks the lines of the document.
    code = compile("\n" * (block.line - 1) + block.text, file, "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def run_shell(block: Block, folder: Path) -> str:
    programs = folder / ".programs"
    programs.mkdir(exist_ok=True)
    command = programs / "flashcore"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flashcore "$@"\n')
    command.chmod(0o755)
    package = str(Path(fc.__file__).absolute().parents[1])
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{package}:{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", block.text], env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, f"line {block.line}: {done.stderr}"
    return done.stdout


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """An empty current directory, and an environment that may be changed."""
    environment = dict(os.environ)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(environment)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_code_runs_and_prints_what_it_says(name: str, workplace: Path) -> None:
    path = ROOT / name
    text = path.read_text()
    names: dict[str, object] = {"__name__": name}
    printed: str | None = None
    replacements: list[tuple[tuple[int, int], str]] = []
    for block in blocks(text):
        if block.language == "cpp" and block.words:
            load = f'load("{block.words[0]}")'
            runs = (b.text for b in blocks(text) if b.language == "python" and can_run(b))
            compile_cpp(block, workplace, any(load in code for code in runs))
        elif block.language == "python":
            printed = run_python(block, names, str(path)) if can_run(block) else None
        elif block.language == "sh" and block.words == ("run",):
            printed = run_shell(block, workplace)
        elif block.language == "text" and "output" in block.words and printed is not None:
            if UPDATE:
                replacements.append((block.span, printed))
            else:
                assert printed == block.text, f"{name}:{block.line}; FLASHCORE_UPDATE=1 rewrites it"
    for (start, end), output in reversed(replacements):
        text = text[:start] + output + text[end:]
    if replacements:
        path.write_text(text)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    path = ROOT / name
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        to = path.parent / file if file else path
        if not to.exists() or (anchor and anchor not in anchors(to.read_text())):
            broken.append(target)
    assert broken == []


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_environment_variable_is_documented() -> None:
    text = (ROOT / "docs/environment.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    assert rows == [(name, fallback, meaning) for name, fallback, meaning in fc.environment()]


def test_every_operation_of_the_language_is_documented() -> None:
    text = (ROOT / "docs/language.md").read_text()
    codes = re.findall(
        r"^FC_OP\((\w+), (\w+),", (ROOT / "dsl/ir/ops.def").read_text(), re.MULTILINE
    )
    assert len(codes) > 40
    # A word of C++ has an underscore there.
    missing = [code for code, _ in codes if f"`{code.rstrip('_')}`" not in text]
    assert missing == []


def test_every_field_of_a_schedule_is_documented() -> None:
    text = (ROOT / "docs/language.md").read_text()
    table = text[text.index("\n## The schedule") :]
    documented = dict(re.findall(r"^\| `(\w+)` \| ?`?(\w*)`? \|", table, re.MULTILINE))
    fields = json.loads(fc.Schedule().to_json())
    values = {name: str(value).lower() for name, value in fields.items()}
    assert documented == values | {"tiles": ""}


def test_every_target_is_documented() -> None:
    line = re.search(r"^- Targets: (.*), through", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert line
    assert line[1].replace("sm_", "").split(", ") == [t.removeprefix("sm_") for t in fc.targets()]


def test_every_pass_is_documented() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    listed = re.sub(r'"\s+"', "", (ROOT / "codegen/passes/passes.def").read_text())
    passes = re.findall(r'^FC_PASS\((\w+),\s*"(.*)"\)$', listed, re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", text, re.MULTILINE)
    assert len(passes) > 5
    assert passes == [row for row in rows if row[0] in dict(passes)]


def test_every_fault_of_the_emulator_is_documented() -> None:
    text = (ROOT / "docs/emulator.md").read_text()
    names = (ROOT / "runtime/emulator/emulator_error.cpp").read_text()
    kinds = re.findall(r'case FaultKind::\w+:\s*return "(.*?)";', names)
    assert len(kinds) > 5
    assert [kind for kind in kinds if f"| {kind} |" not in text] == []


def test_blocks_are_found() -> None:
    text = "a\n```python gpu\nx = 1\n\ny = 2\n```\n```text output\n```\nb\n"
    first, second = blocks(text)
    assert (first.language, first.words, first.text, first.line) == (
        "python", ("gpu",), "x = 1\n\ny = 2\n", 3)  # fmt: skip
    assert (second.language, second.words, second.text) == ("text", ("output",), "")
    assert prose(text) == "a\n\n\nb\n"
