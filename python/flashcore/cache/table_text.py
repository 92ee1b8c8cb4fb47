"""JSON of tables that people read: what is short is a line, and fields fill lines."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 100


def table_text(value: Any, indent: int = 0, name: str = "") -> str:
    """JSON of value, behind its name if it has one, in lines of up to `WIDTH` columns that are
    broken between fields and elements; what is inside stands behind `indent` and two spaces."""
    line = name + json.dumps(value)
    if not isinstance(value, dict | list) or indent + len(line) < WIDTH:
        return line
    inner = indent + 2
    if isinstance(value, list):
        lines, (begin, end) = [table_text(each, inner) for each in value], "[]"
    else:
        lines, (begin, end) = [], "{}"
        for key, field in value.items():
            text = table_text(field, inner, f"{json.dumps(key)}: ")
            fills = lines and "\n" not in lines[-1] + text
            if fills and inner + len(lines[-1]) + len(text) + 2 < WIDTH:
                lines[-1] += f", {text}"
            else:
                lines.append(text)
    margin = " " * indent
    return name + begin + ",".join(f"\n{margin}  {each}" for each in lines) + f"\n{margin}{end}"


__all__ = ["WIDTH", "table_text"]
