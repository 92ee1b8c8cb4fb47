"""Which schedules a call takes, and how many are compiled until one fits."""

import numpy as np
import pytest

import flashcore as fc
from flashcore.cache import tuning_table
from flashcore.kernels.schedule_choice import schedules_for

TABLES = [np.arange(i, 400 + i) % 7 for i in range(6)]
PLANES = [np.add.outer(table, table) % 3 == 0 for table in TABLES]


def compiled(spec, target):
    messages = []
    fc.set_log_hook(lambda level, text: messages.append(text))
    try:
        fc.jit(spec, target=target)
    finally:
        fc.set_log_hook(None)
    return sum(text.startswith("compiled ") for text in messages)


def any_of(conditions):
    def mask(b, h, q_idx, kv_idx):
        visible = conditions[0](q_idx, kv_idx)
        for condition in conditions[1:]:
            visible = visible | condition(q_idx, kv_idx)
        return visible

    return mask


DOCUMENTS = any_of([lambda q, k, t=table: t[q] == t[k] for table in TABLES])
DENSE = any_of([lambda q, k, p=plane: p[q, k] for plane in PLANES])


@pytest.mark.parametrize("mask", [DOCUMENTS, DENSE], ids=["documents", "dense"])
@pytest.mark.parametrize("target", ["sm_80", "sm_89"])
def test_six_masks_that_look_up_compile_once(target, mask):
    assert compiled(fc.AttentionSpec(head_dim=64, mask=mask), target) == 1


def test_dense_masks_beyond_what_warpgroups_hold_compile_few():
    assert compiled(fc.AttentionSpec(head_dim=128, mask=DENSE), "sm_90a") <= 2


def test_a_choice_is_what_the_rules_and_the_table_say(tmp_path, monkeypatch):
    table = tmp_path / "schedules.json"
    monkeypatch.setenv("FLASHCORE_SCHEDULES", str(table))
    spec = fc.AttentionSpec(head_dim=64, mask=fc.causal())
    kernel = fc.AttentionKernel.shipped(spec, "sm_90a", compiled=False)
    rng = np.random.default_rng(5)

    def check():
        chosen = set()
        for _ in range(200):
            batch, heads, q_len, k_len = (int(2 ** rng.uniform(0, top)) for top in (5, 5, 14, 14))
            problem = batch, heads, q_len, k_len
            texts = kernel._dispatch(False).core.schedules(problem)
            assert texts == schedules_for(spec, "sm_90a", True, problem)
            chosen.add(texts[0])
        return chosen

    assert len(check()) > 2
    measured = fc.Schedule.from_json(schedules_for(spec, "sm_90a", True, (8, 8, 900, 900))[-1])
    problem = 8, 8, 900, 900
    key = tuning_table.key_for(spec, "sm_90a", problem)
    tuning_table.write(table, [key], measured, {})
    check()  # the next call goes by the table that was written
    assert kernel._dispatch(False).core.schedules(problem)[0] == measured.to_json()
