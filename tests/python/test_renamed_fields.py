"""Old names of a schedule's fields and values are refused by errors that say the new ones."""

from __future__ import annotations

import pytest

import flashcore as fc

NAMES = [
    ("alternate", "ping_pong"),
    ("loop_blocks", "cluster_splits"),
    ("scale_late", "rescale_before_product"),
    ("tile_order", "tile_scheduler"),
]
VALUES = [
    ("tile_scheduler", "rounds", "serpentine"),
    ("tile_scheduler", "counter", "dynamic"),
    ("grid_order", "sections", "grouped"),
]


@pytest.mark.parametrize(("old", "new"), NAMES)
def test_renamed_fields_name_the_new_field(old: str, new: str) -> None:
    said = f"it is called {new} now"
    with pytest.raises(fc.ScheduleError, match=said):
        fc.Schedule(**{old: 1})
    with pytest.raises(fc.ScheduleError, match=said):
        fc.Schedule.from_json(f'{{"{old}": 1}}')
    with pytest.raises(fc.ScheduleError, match=said):
        fc.jit(fc.AttentionSpec(head_dim=64), target="sm_90a", schedule={old: 1})


@pytest.mark.parametrize(("field", "old", "new"), VALUES)
def test_renamed_values_name_the_new_value(field: str, old: str, new: str) -> None:
    said = f"it is called {new} now"
    with pytest.raises(fc.ScheduleError, match=said):
        fc.Schedule(**{field: old})
    with pytest.raises(fc.ScheduleError, match=said):
        fc.Schedule.from_json(f'{{"{field}": "{old}"}}')


def test_renamed_fields_are_only_those() -> None:
    with pytest.raises(fc.ScheduleError, match="there is no such choice"):
        fc.Schedule(copy="counter")
    with pytest.raises(fc.ScheduleError, match="there is no such field"):
        fc.Schedule(rounds=1)
