"""The arrays and numbers that a spec's expressions read, in the order that kernels take them in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import arguments
from ..errors import SpecError
from ..specs.expression import bound_arrays
from ..specs.spec import AttentionSpec

# Arrays, and numbers.
Apart = tuple[tuple[Any, ...], tuple[Any, ...]]


class CapturedValues:
    """Of a kernel of this name: `own` has what the expressions captured by name, None where a call
    has to say; `given` the same as kernels take it, None while something is missing."""

    def __init__(self, kernel: str, spec: AttentionSpec):
        self._kernel = kernel
        self._tensors = {t.name: t for part in spec.expressions if part for t in part.tensors}
        self.own = bound_arrays(*spec.expressions)
        self.given = self._apart(self.own)
        self.arrays = [name for name in self.own if self._tensors[name].rank]
        # A launch makes no copies of these. Of rows that are to be aligned it does: at odd lengths
        # they begin anywhere.
        self.in_place = [name for name in self.arrays if not self._tensors[name].aligned_rows]

    def with_given(self, given: Mapping[str, Any]) -> Apart:
        """With these in place of those captured. Raises SpecError for a name that the expressions
        do not have, and for one that nobody gave."""
        if type(given) is not dict and not isinstance(given, Mapping):
            fix = "a dictionary of arrays by name"
            raise arguments.refusal("captured", given, "it is no dictionary", fix)
        unknown = [name for name in given if name not in self.own]
        every = self._apart({name: given.get(name, a) for name, a in self.own.items()})
        if every is not None and not unknown:
            return every
        missing = [n for n, a in self.own.items() if a is None and n not in given]
        wanted = ", ".join(
            f"{t.name}: {t.dtype} with {t.rank} dimensions" if t.rank else f"{t.name}: a number"
            for t in self._tensors.values()
        )
        raise SpecError(
            f"calling {self._kernel}",
            f"it captures no {', '.join(unknown)}" if unknown else f"it needs {', '.join(missing)}",
            f"captured={{...}} with {wanted}" if wanted else "leave captured out",
        )

    def _apart(self, values: Mapping[str, Any]) -> Apart | None:
        """Arrays and numbers in their order, or None if one is missing. A lone number where an
        array is expected is an array of one."""
        if any(value is None for value in values.values()):
            return None
        arrays = [a for name, a in values.items() if self._tensors[name].rank]
        numbers = tuple(
            _number(name, value, self._tensors[name].dtype)
            for name, value in values.items()
            if not self._tensors[name].rank
        )
        try:
            return tuple([a.reshape(1) if a.shape == () else a for a in arrays]), numbers
        except AttributeError:
            for name, value in values.items():
                if self._tensors[name].rank:
                    arguments.array(f"captured {name}", value)
            raise


def _number(name: str, value: Any, dtype: str) -> int | float:
    title = f"the captured number {name}"
    if dtype == "i32":
        return arguments.whole(title, value, "a whole number of 32 bits")
    return arguments.number(title, value, "a number that an f32 holds")


__all__ = ["CapturedValues"]
