"""How many schedules are compiled until one fits."""

import numpy as np
import pytest

import flashcore as fc

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
