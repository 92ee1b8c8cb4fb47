"""Lengths in CPU memory against the arrays that they cut up.

Lengths on a GPU are only known there: kernels cut them to the arrays. Where they can be read at no
cost beside the emulator's, wrong ones are a mistake to be told.
"""

from __future__ import annotations

from typing import Any

import numpy

from ..arrays import is_torch_tensor
from ..errors import SpecError


def numbers(array: Any) -> numpy.ndarray[Any, Any] | None:
    """What a vector in CPU memory holds; None for one that lies elsewhere or is no vector."""
    if not isinstance(array, numpy.ndarray) and is_torch_tensor(array):
        plain = array.device.type == "cpu" and not array.is_neg()
        array = array.detach().numpy() if plain else None
    return array if isinstance(array, numpy.ndarray) and array.ndim == 1 else None


def check_starts(name: str, starts: Any, total: int, tensors: str) -> None:
    """Refuses starts of packed sequences that are none, of arrays with `total` rows."""
    given = numbers(starts)
    if given is None or given.size == 0:
        return
    if given[0] != 0:
        _refuse(name, f"it begins with {given[0]}", "0, where the first sequence starts")
    falls = numpy.flatnonzero(given[1:] < given[:-1])
    if falls.size:
        at = int(falls[0])
        why = f"it falls from {given[at]} to {given[at + 1]} at index {at + 1}"
        _refuse(name, why, "the running sum of the lengths, as of cumsum")
    if given[-1] > total:
        why = f"it ends with {given[-1]}, and {tensors} has {total} rows"
        _refuse(name, why, f"{total} at most")


def check_longest(name: str, starts: Any, longest: int) -> None:
    """Refuses a longest length, the argument `name`, beyond which rows would be left out."""
    given = numbers(starts)
    if given is None or given.size < 2 or longest < 0:  # a launch refuses a negative one
        return
    lengths = numpy.diff(given)
    at = int(lengths.argmax())
    if lengths[at] > longest:
        _refuse(
            f"{name} = {longest}",
            f"sequence {at} has {lengths[at]} rows, and those beyond would not be computed",
            f"{lengths[at]} or more, or leave it out",
        )


def check_lengths(name: str, lengths: Any, most: int, dimension: str) -> None:
    """Refuses lengths of padded sequences that are negative or beyond the padding."""
    given = numbers(lengths)
    if given is None:
        return
    wrong = numpy.flatnonzero((given < 0) | (given > most))
    if wrong.size:
        at = int(wrong[0])
        why = f"sequence {at} has length {given[at]}, and {dimension} is {most}"
        _refuse(name, why, f"lengths from 0 to {most}")


def _refuse(what: str, why: str, fix: str) -> None:
    raise SpecError(f"calling attention_forward: {what}", why, fix)
