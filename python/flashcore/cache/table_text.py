"""JSON of tables that people read: what is short is a line, and fields fill lines."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 118


def table_text(value: Any, indent: int = 0) -> str:
    """JSON of value, within lines of `WIDTH` columns where it can be broken, of which the first
    begins at `indent`."""
    line = json.dumps(value)
    if not isinstance(value, dict | list) or indent + len(line) <= WIDTH:
        return line
    inner = indent + 2
    margin = "\n" + " " * inner
    if isinstance(value, list):
        return "[" + ",".join(margin + table_text(each, inner) for each in value) + f"\n{' ' * indent}]"
    fields = [f"{json.dumps(name)}: {table_text(field, inner)}" for name, field in value.items()]
    lines = [fields[0]]
    for field in fields[1:]:
        if "\n" in lines[-1] + field or inner + len(lines[-1]) + len(field) + 2 >= WIDTH:
            lines.append(field)
        else:
            lines[-1] += f", {field}"
    return "{" + ",".join(margin + each for each in lines) + f"\n{' ' * indent}}}"


__all__ = ["WIDTH", "table_text"]
