"""The cases that decode_cases.py draws, without a GPU."""

from decode_cases import CASES_OF_A_KERNEL, draw_case

import flashcore as fc


def test_cases_are_those_of_their_seed() -> None:
    assert draw_case(5, 17) == draw_case(5, 17)
    assert draw_case(5, 17) != draw_case(6, 17)


def test_cases_that_follow_each_other_have_one_kernel() -> None:
    cases = [draw_case(1, number) for number in range(CASES_OF_A_KERNEL)]
    assert len({(case.head_dim, case.page_size, case.heads, case.q_len) for case in cases}) == 1
    assert len({case.lens for case in cases}) > CASES_OF_A_KERNEL // 2


def test_lengths_are_of_every_kind() -> None:
    cases = [draw_case(2, number) for number in range(300)]
    assert all(len(case.lens) == case.batch for case in cases)
    assert any(0 in case.lens for case in cases)
    assert any(len(set(case.lens)) == 1 for case in cases if case.batch > 1)
    # Some share the keys of all sequences out evenly.
    spec = fc.AttentionSpec(head_dim=64, kv_lens=True)
    chooser = fc._core.DecodeChooser(spec.to_json(), "sm_90a")
    balanced = [chooser.blocks(case.batch, 1, 1, 4096, 132)[3] for case in cases]
    assert 100 < sum(balanced) < 250
