"""The parameters of torch's tests of scaled_dot_product_attention, at the calls of sdpa_calls.py.

Left out are the parts of those grids about gradients, dropout and fp32; a few of them stand here as
calls that have to be refused.
"""

from __future__ import annotations

from cases import Family
from sdpa_calls import (
    band,
    bias_object,
    hidden_rows,
    large,
    mask_shapes,
    masked,
    memory,
    missing,
    nested,
    of_sizes,
    one_head_dim_singleton,
    projection,
    refused,
    scaled,
    shaped,
    values_apart,
)

LOW = ["f16", "bf16"]

FAMILIES = [
    Family(
        "projections",
        {
            "dtype": LOW, "batch": [2, 12], "length": [267, 1030], "heads": [1, 3],
            "head_dim": [8, 16], "is_causal": [True, False],
        },
        projection,
    ),
    Family(
        "packed",
        {
            "dtype": ["f16"], "batch": [8, 16], "length": [8, 128], "heads": [4, 8],
            "head_dim": [64], "is_causal": [False], "contiguous": [True, False],
        },
        projection,
    ),
    Family(
        "masks_of_two_dimensions",
        {"whole": mask_shapes(2), "boolean": [True, False], "dtype": LOW},
        masked,
    ),
    Family(
        "masks_of_four_dimensions",
        {"whole": mask_shapes(4), "boolean": [True, False], "dtype": LOW},
        masked,
    ),
    Family(
        "mask_variants",
        {
            "whole": [(True,), (True, True), (True, True, True), (True, True, True, True)],
            "boolean": [True, False], "dtype": ["f16"], "batch": [8], "heads": [8],
            "q_len": [64, 15], "kv_len": [64, 408], "head_dim": [64],
        },
        masked,
    ),
    Family(
        "masks_in_memory",
        {
            "whole": [(True, True), (True, False, True, True), (True, True, True, True)],
            "boolean": [True, False], "dtype": LOW, "head_dim": [64],
            "memory": ["transposed", "sliced", "expanded", "offset"],
        },
        masked,
    ),
    Family(
        "mask_in_another_dtype",
        {"whole": [(True, True)], "boolean": [False], "dtype": LOW, "mask_dtype": ["f32"]},
        masked,
    ),
    Family("mask_of_a_band", {"dtype": LOW}, band),
    Family(
        "rows_without_keys",
        {"dtype": LOW, "boolean": [True, False], "rows": [1, 4, 8]},
        hidden_rows,
    ),
    Family("scales", {"dtype": LOW, "scale": [-1 / 0.0001, -1.0, 0.0, 1e-3, 2.5]}, scaled),
    Family(
        "large_values", {"dtype": ["bf16"], "value": [133120.0, -133120.0]}, large,

    ),
    Family(
        "efficient",
        {
            "batch": [1, 8], "q_len": [4, 8, 64, 128, 256, 512, 1024, 2048],
            "kv_len": [4, 8, 64, 128, 256, 512, 1024, 2048],
            "head_dim": [8, 16, 32, 64, 72, 96, 128], "is_causal": [False, True], "dtype": LOW,
            "scale": [None, "l1"],
        },
        of_sizes,
    ),
    Family(
        "efficient_with_mask",
        {
            "batch": [1, 8], "q_len": [4, 8, 64, 128, 256, 312, 512, 1024, 2048],
            "kv_len": [4, 8, 64, 65, 128, 256, 408, 512, 1024, 2048],
            "head_dim": [8, 16, 32, 64, 72, 96, 128], "dtype": LOW, "scale": [None, "l1"],
            "mask": ["floats"],
        },
        of_sizes,
    ),
    Family(
        "flash",
        {
            "batch": [1, 8], "q_len": [4, 8, 64, 143, 256, 512, 1024, 2048],
            "kv_len": [4, 8, 64, 128, 256, 587, 1024, 2048],
            "head_dim": [8, 16, 21, 32, 64, 72, 96, 128, 160, 192, 203, 256],
            "is_causal": [True, False], "dtype": LOW, "scale": [None, "l1"],
        },
        of_sizes,
        takes=lambda *, q_len, kv_len, is_causal, **_: not is_causal or q_len == kv_len,
    ),
    Family(
        "grouped_heads",
        {
            "batch": [1, 8], "q_len": [4, 143, 2048], "kv_len": [4, 127, 579, 2048],
            "head_dim": [8, 203, 256], "is_causal": [True, False], "dtype": LOW,
            "scale": [None, "l1"], "heads": [(16, 8), (10, 2)],
        },
        of_sizes,
        takes=lambda *, q_len, kv_len, is_causal, **_: not is_causal or q_len == kv_len,
    ),
    Family(
        "shapes",
        {
            "shapes": [
                ((2, 5, 4),) * 3,  # unbatched heads
                ((2, 5, 8), (2, 7, 8), (2, 7, 8)),
                ((2, 3, 5, 4),) * 3,
                ((2, 2, 3, 5, 8),) * 3,  # two batch dimensions
                ((2, 1, 2, 5, 16), (2, 1, 2, 7, 16), (2, 1, 2, 7, 16)),
                ((2, 4, 3, 8), (1, 4, 3, 8), (1, 4, 3, 8)),  # broadcast batch
                ((1, 4, 3, 8), (2, 4, 3, 8), (2, 4, 3, 8)),
                ((2, 4, 3, 8), (2, 4, 3, 8), (1, 4, 3, 8)),
                ((2, 4, 3, 8), (2, 1, 3, 8), (2, 1, 3, 8)),
                ((2, 2, 0, 8),) * 3,  # nothing to do
                ((2, 2, 3, 8), (2, 2, 0, 8), (2, 2, 0, 8)),
                ((0, 2, 3, 8),) * 3,
                ((2, 2, 8, 5),) * 3,
                ((2, 2, 3, 9),) * 3,
                ((1, 1, 1, 1),) * 3,
                ((5, 1, 1, 40),) * 3,
            ],
            "dtype": LOW, "is_causal": [False, True],
        },
        shaped,
    ),
    Family(
        "masks_of_shapes",
        {
            "shapes": [((2, 5, 4), (2, 7, 4), (2, 7, 4)), ((3, 2, 5, 4), (3, 2, 7, 4), (3, 2, 7, 4))],  # noqa: E501
            "mask": [(5, 7), (1, 7), (5, 1), (2, 5, 7), (1, 5, 7)],
            "dtype": ["f16"], "is_causal": [False],
        },
        shaped,
    ),
    Family(
        "memory",
        {
            "dtype": LOW,
            "kind": [
                "last_dim_stepped", "last_two_exchanged", "all_strides_two", "rows_of_odd_stride",
                "odd_offset", "expanded_heads", "expanded_batch", "length_first", "head_first",
                "batch_last",
            ],
            "head_dim": [16, 21, 64],
        },
        memory,
    ),
    Family("singleton_head_dim", {"dtype": LOW}, one_head_dim_singleton),
    Family(
        "values_of_another_width",
        {
            "dtype": LOW, "head_dim": [64, 128, 192], "head_dim_v": [32, 64, 128],
            "is_causal": [False, True],
        },
        values_apart,
    ),
    Family(
        "bias_objects",
        {
            "q_len": [1, 13, 128], "kv_len": [1, 13, 50, 128], "corner": ["upper_left", "lower_right"],  # noqa: E501
            "dtype": ["f16"],
        },
        bias_object,
        torch=True,
    ),
    Family(
        "nested",
        {
            "lengths": [(2, 4, 5, 6, 7), (17, 1, 30), (8, 8)],
            "kv_lengths": [None, "other"], "heads": [1, 8], "head_dim": [8, 57, 64],
            "dtype": LOW, "is_causal": [False, True],
        },
        lambda arrays, sizes, *, lengths, kv_lengths, **more: nested(
            arrays, sizes, lengths=lengths,
            kv_lengths=None if kv_lengths is None else tuple(n + 3 for n in lengths), **more,
        ),
        torch=True,
        takes=lambda *, kv_lengths, is_causal, **_: kv_lengths is None or not is_causal,
    ),
    Family(
        "refused",
        {
            "what": [
                "dtypes_differ", "one_dimension", "heads_differ", "heads_do_not_divide",
                "head_dims_differ", "kv_lengths_differ", "batches_differ",
                "mask_does_not_broadcast", "mask_of_integers", "i32",
            ],
        },
        refused,
    ),
    Family("missing", {"what": ["dropout", "f64", "head_dim_513"]}, missing),
]  # fmt: skip
