"""The rows of a benchmark as tables: ours and theirs in adjacent columns, and their ratio."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TITLES = {
    "flash": "FlashAttention 2",
    "cudnn": "cuDNN",
    "fa3": "FlashAttention 3",
    "best": "best peer",  # the fastest of a row's peers
}
BEGIN, END = "<!-- benchmark:begin -->", "<!-- benchmark:end -->"


@dataclass
class Row:
    dtype: str
    head_dim: int
    mask: str
    length: int
    ours: float  # TFLOP/s
    peers: dict[str, float] = field(default_factory=dict)  # TFLOP/s
    error: float = 0.0  # against the peers, the largest
    batch: int = 1
    heads: int = 1

    @property
    def operations(self) -> float:
        """A causal product counts half the operations of a full one."""
        whole = 4 * self.batch * self.heads * self.length**2 * self.head_dim
        return whole * (0.5 if self.mask == "causal" else 1)

    def speed(self, peer: str) -> float | None:
        """In TFLOP/s; None where it did not run."""
        if peer == "best":
            return max(self.peers.values(), default=None)
        return self.peers.get(peer)

    def ratio(self, peer: str) -> float | None:
        """Above 1 where FlashCore is faster; None where one of the two has no time."""
        speed = self.speed(peer)
        return self.ours / speed if speed and math.isfinite(self.ours) else None


def mean_and_least(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The geometric mean and the smallest."""
    if not ratios:
        return None
    return math.exp(sum(map(math.log, ratios)) / len(ratios)), min(ratios)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def cells(row: Row, peers: Sequence[str]) -> list[str]:
    found = [row.dtype, str(row.head_dim), row.mask, str(row.length), f"{row.ours:.0f}"]
    for peer in peers:
        speed, ratio = row.speed(peer), row.ratio(peer)
        found += [f"{speed:.0f}" if speed else "-", f"{ratio:.2f}" if ratio else "-"]
    return found


def header(peers: Sequence[str]) -> list[str]:
    titles = ["dtype", "head_dim", "mask", "length", "FlashCore"]
    for peer in peers:
        titles += [TITLES[peer], "ratio"]
    return titles


def summary(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """Geometric mean and minimum of the ratios, by head_dim and mask and over everything."""
    lines = []
    groups = sorted({(row.head_dim, row.mask) for row in rows})
    parts = [(str(d), m, [r for r in rows if (r.head_dim, r.mask) == (d, m)]) for d, m in groups]
    for head_dim, mask, part in [*parts, ("all", "", list(rows))]:
        line = [head_dim, mask, str(len(part))]
        for peer in peers:
            found = mean_and_least([ratio for row in part if (ratio := row.ratio(peer))])
            line += [f"{found[0]:.2f}", f"{found[1]:.2f}"] if found else ["-", "-"]
        lines.append(line)
    titles = ["head_dim", "mask", "rows"]
    for peer in peers:
        titles += [f"vs {TITLES[peer]}, mean", "least"]
    return table(titles, lines)


def markdown(rows: Sequence[Row], peers: Sequence[str], where: str, what: str) -> str:
    return (
        f"Measured {datetime.date.today()} on {where}.\n"
        f"{what}; ratios of times in one run, above 1 where FlashCore is faster.\n\n"
        f"{summary(rows, peers)}\n\n"
        "<details><summary>Every row, in TFLOP/s</summary>\n\n"
        f"{table(header(peers), [cells(row, peers) for row in rows])}\n\n</details>\n"
    )


def write_markdown(path: Path, text: str) -> None:
    """Between the two comments, if the file has them; else the whole file."""
    if path.exists() and BEGIN in (old := path.read_text()) and END in old:
        before, rest = old.split(BEGIN, 1)
        text = f"{before}{BEGIN}\n{text}{END}{rest.split(END, 1)[1]}"
    path.write_text(text)
