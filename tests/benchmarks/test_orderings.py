"""The search for orderings of large blocks: what it tries, and its table read and written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import flashcore as fc

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import orderings  # noqa: E402

from flashcore import _core  # noqa: E402

DIMS = orderings.WIDEST // orderings.STEP


def schedule(**fields: Any) -> dict[str, Any]:
    text = json.dumps({"tiles": {"rows": 128, "cols": 128}} | fields)
    normal: dict[str, Any] = json.loads(_core.normal_schedule(text))
    return normal


def cell(kind: str, is_alone: bool = False, **fields: Any) -> orderings.Cell:
    return orderings.Cell(kind, 64, None, None, 32, schedule(**fields), is_alone)


def one(at: int, fields: dict[str, Any]) -> list[dict[str, Any] | None]:
    return [fields if i == at else None for i in range(DIMS)]


def test_the_table_that_ships_is_written_as_it_is_read() -> None:
    table = orderings.read_table(orderings.SHIPPED)
    assert orderings.written(table) == orderings.SHIPPED.read_text()
    assert {len(of_dims) for of_dims in table.values()} == {DIMS}


def test_changes_are_of_one_field_or_of_all_that_rescale_early() -> None:
    changed = orderings.changes(cell("128 full plain open", peel_masks=True))
    now = schedule(peel_masks=True)
    apart = {name: {f for f, v in s.items() if v != now[f]} for name, s in changed.items()}
    assert apart["peel_masks=False"] == {"peel_masks"}
    assert apart["outer_stages=2"] == {"outer_stages"}
    assert apart["early=True"] == set(orderings.EARLY)
    assert all(len(fields) == 1 for name, fields in apart.items() if name != "early=True")
    assert "ping_pong=True" not in apart


def test_ping_pong_is_tried_where_no_other_family_has_it() -> None:
    changed = orderings.changes(cell("128 full plain open", is_alone=True))
    assert changed["ping_pong=True"]["ping_pong"]


def test_what_is_found_changes_the_fields_that_differ_alone() -> None:
    found = cell("192 full plain open")
    found.changed = {"lazy_scaling": True, "staged_stores": True}
    table: orderings.Table = {found.kind: one(3, {"staged_stores": False, "outer_stages": 2})}
    orderings.put(found, table)
    assert table == {found.kind: one(3, {"outer_stages": 2, "lazy_scaling": True})}
    assert not found.changed


def test_a_cell_with_ping_pong_moves_to_the_family_that_has_it() -> None:
    found = cell("128 causal softcap open")
    found.changed = {"ping_pong": True}
    table: orderings.Table = {"128 causal softcap open": one(3, {"outer_stages": 2})}
    orderings.put(found, table)
    assert table["128 causal softcap open"] == [None] * DIMS
    assert table["128/ping_pong causal softcap open"] == one(3, {"outer_stages": 2})
    assert found.kind == "128/ping_pong causal softcap open"


def test_orderings_are_numbered_by_how_often_they_are_used() -> None:
    often: dict[str, Any] = {"peel_masks": True}
    table: orderings.Table = {"192 full plain open": [{}, often, often] + [None] * (DIMS - 3)}
    text = json.loads(orderings.written(table))
    assert text["orderings"] == {"0": often, "1": {}}
    assert text["measured"]["192 full plain open"].split()[:4] == ["1", "0", "0", "-"]


def test_the_base_of_a_search_is_a_candidate_of_the_spec() -> None:
    spec = fc.AttentionSpec(head_dim=128, mask=fc.causal())
    families = {_core.cost_family(text) for text in _core.candidate_schedules(spec.to_json())}
    table = orderings.read_table(orderings.SHIPPED)
    offered = {
        kind.split()[0]
        for kind, of_dims in table.items()
        if kind.endswith("causal plain open") and of_dims[128 // orderings.STEP - 1] is not None
    }
    assert offered <= families
