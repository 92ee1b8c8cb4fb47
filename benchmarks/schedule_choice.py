"""How good the choice of schedules is: what is chosen beside all candidates, on random problems.

    python benchmarks/schedule_choice.py                      # 400 problems
    python benchmarks/schedule_choice.py --head-dims 64,128 --seed 7 --out choice.json
    python benchmarks/schedule_choice.py --masks window_128,window_1024,chunked_512,prefix_300

bf16; batch 1 to 64, heads 1 to 64, of every second problem in groups, lengths 1 to 32k, full and
causal, or other masks, head_dim 32 to 256, a few milliseconds at most. All candidates for a
problem are timed by turns, short ones twenty calls together over inputs that take turns, and the
time of what calls get is held against the best. Where multiprocessors would be idle, kernels with
split keys are contenders as well. A problem that is far off is timed once more, and the shorter
time of each contender counts. Only Hopper has several candidates.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gpu_timing import machine, require_gpu
from options import numbers, words

FAR = 1.15
LISTED = 5  # candidates of a problem that are shown
HEAD_DIMS = [32, 64, 96, 128, 192, 256]


def masks(fc: Any) -> dict[str, Any]:
    return {
        "full": fc.full(),
        "causal": fc.causal(),
        "window_128": fc.sliding_window(127, 0),
        "window_1024": fc.sliding_window(1023, 0),
        "window_both_512": fc.sliding_window(512, 512),
        "chunked_512": fc.chunked(512),
        "prefix_300": fc.prefix(300) | fc.causal(),
    }


class Drawn(NamedTuple):
    mask: str
    spec: Any
    problem: Any


@dataclass
class Choice:
    """A problem, the times of all contenders in microseconds, and which of them calls get."""

    head_dim: int
    mask: str
    kv_heads: int
    """0: as many as heads."""
    problem: tuple[int, int, int, int]
    spec: str
    whole: dict[str, float] = field(default_factory=dict)
    """Of kernels that leave keys whole, by the schedule as JSON."""
    chosen: str = ""
    """Among them."""
    split: dict[str, float] = field(default_factory=dict)
    """Of kernels with split keys, and again of the best of those that leave keys whole and of the
    one that is chosen; empty where no multiprocessor is idle without splits."""
    chosen_call: str = ""
    """Among the latter: what a call gets."""

    @property
    def loss(self) -> float:
        """The time of the schedule that is chosen over that of the best."""
        return self.whole[self.chosen] / min(self.whole.values())

    @property
    def call_loss(self) -> float:
        """Of what a call gets, over the best of all."""
        if not self.split:
            return self.loss
        return self.split[self.chosen_call] / min(self.split.values())

    def title(self) -> str:
        batch, heads, q_len, kv_len = self.problem
        groups = f"/{self.kv_heads}" if self.kv_heads else ""
        return f"{self.mask} D{self.head_dim} B{batch} H{heads}{groups} {q_len} rows, {kv_len} keys"


def summary(losses: Sequence[float]) -> str:
    if not losses:
        return "no problems"
    far = sum(loss > FAR for loss in losses)
    mean = math.exp(sum(map(math.log, losses)) / len(losses))
    return f"{mean:.3f} in the mean, {max(losses):.2f} at most, above {FAR}: {far} of {len(losses)}"


def report(choices: Sequence[Choice]) -> list[str]:
    """What calls get over the best of all contenders, and over that of those that leave keys whole
    what is chosen among these: all problems, by kind, and every problem that is far off."""
    lines = ["what calls get over the best", f"  all: {summary([c.call_loss for c in choices])}"]
    idle = [c for c in choices if c.split]
    lines.append(f"  where splits are contenders: {summary([c.call_loss for c in idle])}")
    split = [c for c in idle if c.chosen_call != c.chosen]
    lines.append(f"  whose keys are split: {summary([c.call_loss for c in split])}")
    parts = {
        "all": choices,
        "without groups": [c for c in choices if not c.kv_heads],
        "groups": [c for c in choices if c.kv_heads],
    }
    for mask in dict.fromkeys(c.mask for c in choices):
        parts[mask] = [c for c in choices if c.mask == mask]
    lines.append("keys whole, chosen over best")
    lines += [f"  {name}: {summary([c.loss for c in part])}" for name, part in parts.items()]
    for c in choices:
        if c.call_loss > FAR:
            lines.append(f"{c.title()}, calls: {c.call_loss:.3f}")
            lines += contenders(c.split or c.whole, c.chosen_call or c.chosen)
        if c.split and c.loss > FAR:
            lines.append(f"{c.title()}, keys whole: {c.loss:.3f}")
            lines += contenders(c.whole, c.chosen)
    return lines


def contenders(times: dict[str, float], chosen: str) -> list[str]:
    """The best, and the one that is chosen."""
    ranked = sorted(times, key=lambda name: times[name])
    shown = ranked[:LISTED] + [chosen] * (chosen not in ranked[:LISTED])
    return [f"  {times[n]:9.1f} us {'*' if n == chosen else ' '} {in_words(n)}" for n in shown]


def in_words(schedule: str) -> str:
    """What tells candidates apart."""
    if not schedule.startswith("{"):
        return f"keys split: {schedule}"
    import flashcore as fc

    s = fc.Schedule.from_json(schedule)
    words = [f"{s.tiles['rows']} x {s.tiles['cols']}"]
    traits = {
        "ping-pong": s.ping_pong,
        "no producer": not s.producer,
        s.tile_scheduler: s.persistent,
        s.grid_order: s.persistent,
        f"{s.blocks_per_processor} blocks": s.blocks_per_processor > 1,
        f"{s.cluster_splits} splits": s.cluster_splits > 1,
    }
    words += [name for name, has_it in traits.items() if has_it]
    return ", ".join(words)


def draw(
    rng: random.Random, count: int, head_dims: Sequence[int], names: Sequence[str]
) -> list[Drawn]:
    """Specs with problems; those with groups share a few numbers of heads, each of which is a spec
    with kernels of its own."""
    import flashcore as fc
    from flashcore.tuning.measurements import draw_problem

    known = masks(fc)
    plain = [(dim, name) for dim in head_dims for name in names]
    specs = [(name, fc.AttentionSpec(head_dim=dim, mask=known[name])) for dim, name in plain]
    for dim, name in plain:
        kv_heads, group = round(2 ** rng.uniform(0, 4)), rng.choice((2, 3, 4, 5, 6, 7, 8, 16))
        heads = kv_heads * min(group, 64 // kv_heads)
        spec = fc.AttentionSpec(head_dim=dim, mask=known[name], heads=heads, kv_heads=kv_heads)
        specs.append((name, spec))
    drawn = [Drawn(name, spec, draw_problem(rng, spec))
             for name, spec in itertools.islice(itertools.cycle(specs), count)]  # fmt: skip
    rng.shuffle(drawn)
    return drawn


def measure(torch: Any, drawn: Sequence[Drawn]) -> list[Choice]:
    from flashcore import _core
    from flashcore.tuning import decode_costs, measurements

    target = _core.gpu_target()
    here = measurements.Measurements.here(torch, target)
    choices = []
    for mask, spec, problem in drawn:
        (chosen, *_) = _core.attention_schedules(spec.to_json(), target, *problem)
        choices.append(Choice(spec.head_dim, mask, spec.kv_heads or 0, problem, spec.to_json(),
                              chosen=chosen))  # fmt: skip
    wanted = measurements.candidates_of(dict.fromkeys(d.spec for d in drawn))
    # A winner of a measured search is no candidate.
    wanted += [(d.spec, c.chosen) for d, c in zip(drawn, choices, strict=True)]
    kernels = measurements.build_kernels(wanted, target, print)
    split = [splits_of(decode_costs, here, d.spec, d.problem) for d in drawn]
    modules = decode_costs.build_splits(
        [(d.spec, b) for d, own in zip(drawn, split, strict=True) for b in own], target, print
    )
    contest = measurements.Contest(torch)
    start = time.monotonic()

    def time_all(c: Choice, spec: Any, blocks: list[Any]) -> None:
        whole = {text: measurements.launch_of(kernel) for text, kernel in kernels[spec].items()}
        c.whole = times_of(contest, whole, spec, c.problem, c.whole)
        if blocks:
            best = min(c.whole, key=lambda text: c.whole[text])
            own = {text: whole[text] for text in (best, c.chosen)}
            for b in blocks:
                if (spec, b) in modules:
                    own[named(b)] = decode_costs.launch_of_splits(modules[spec, b], spec)
            c.split = times_of(contest, own, spec, c.problem, c.split)
            chosen = decode_costs.chosen_blocks(spec, target, c.problem)
            c.chosen_call = named(chosen) if chosen else c.chosen

    for at, (one, blocks, c) in enumerate(zip(drawn, split, choices, strict=True)):
        time_all(c, one.spec, blocks)
        if max(c.loss, c.call_loss) > FAR:  # what disturbs a measurement only ever adds to it
            time_all(c, one.spec, blocks)
        if at % 50 == 49:
            print(
                f"{at + 1} of {len(drawn)} problems, {time.monotonic() - start:.0f} s", flush=True
            )
    return choices


def times_of(
    contest: Any, launches: dict[str, Any], spec: Any, problem: Any, earlier: dict[str, float]
) -> dict[str, float]:
    """Microseconds, or those of earlier where they are less. Of what is hopeless, no more is known
    than that."""
    from flashcore.tuning.measurements import HOPELESS

    times = contest.times(list(launches.values()), spec, problem)
    known = {name: min(us, HOPELESS * min(times)) for name, us in zip(launches, times, strict=True)}
    return {name: min(us, earlier.get(name, math.inf)) for name, us in known.items()}


def named(blocks: tuple[str, int, bool, bool, bool]) -> str:
    rows, row_tile, combines_tiles, balances, skips_long = blocks
    traits = {
        "combined in tiles": combines_tiles,
        "balanced over sequences": balances,
        "long sequences apart": skips_long,
    }
    return ", ".join([f"{row_tile} rows {rows}", *(name for name, has in traits.items() if has)])


def splits_of(decode_costs: Any, here: Any, spec: Any, problem: Any) -> list[Any]:
    """The blocks that a call with split keys could have; none where nothing is idle."""
    if not decode_costs.may_split(spec, here, problem):
        return []
    return decode_costs.blocks_for(spec, here.target, problem[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--head-dims", type=numbers, default=HEAD_DIMS)
    parser.add_argument("--masks", type=words, default=["full", "causal"])
    parser.add_argument("--out", type=Path, help="all times, as JSON")
    given = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    if unknown := set(given.masks) - set(masks(fc)):
        parser.error(f"--masks: {', '.join(sorted(unknown))}; known are {', '.join(masks(fc))}")
    print(machine(torch))
    drawn = draw(random.Random(given.seed), given.problems, given.head_dims, given.masks)
    choices = measure(torch, drawn)
    print("\n".join(report(choices)))
    if given.out:
        rows = [asdict(c) for c in choices]
        given.out.write_text(json.dumps({"machine": machine(torch), "rows": rows}))


if __name__ == "__main__":
    main()
