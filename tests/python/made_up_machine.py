"""A made-up machine whose best schedule is known, for the tuner without a GPU."""

import flashcore as fc
from flashcore import _core
from flashcore.tuning import gpu as tuning_gpu
from flashcore.tuning.autotune import autotune
from flashcore.tuning.log import key_of
from flashcore.tuning.search import Effort

# No shipped winner is for it, and what ships differs between the shapes.
SPEC = fc.AttentionSpec(head_dim=104)
TARGET = "sm_90a"
SHAPES = [(2, 8192, 8192), (2, 1024, 1024)]


def shipped_for(shape):
    problem = tuning_gpu.problem_of(SPEC, shape)
    return _core.attention_schedules(SPEC.to_json(), TARGET, *problem)[0]


SLOW = fc.Schedule(tiles={"rows": 64, "cols": 32}, stages=4)


class Machine:
    """Fastest with wgmma, 176 columns, 2 stages, 8 warps, persistent."""

    def __init__(self, spoil=lambda schedule: "", seconds=0.01):
        self.spoil = spoil
        self.seconds = seconds
        self.now = 0.0
        self.compiles = []
        self.timed = set()

    def clock(self):
        return self.now

    def default(self):
        return SLOW  # almost any candidate is faster, whatever ships

    def compiled(self, schedule):
        self.compiles.append(key_of(schedule))
        if self.spoil(schedule) == "spills":
            raise fc.CompileError("it spills")
        return schedule

    def wrong(self, kernel):
        self.now += self.seconds
        if self.spoil(kernel) == "crashes":
            raise fc.DeviceError("an illegal access")
        return "an error of 3" if self.spoil(kernel) == "wrong" else ""

    def times(self, kernels, rounds):
        self.now += self.seconds * len(kernels) * rounds / 4
        self.timed |= {key_of(kernel) for kernel in kernels}
        return [[self.cost(kernel), 0.1 * self.cost(kernel)] for kernel in kernels]

    @staticmethod
    def cost(s):
        cost = 1000.0
        cost *= 1.0 if s.instruction == "wgmma" else 1.6
        cost *= 1 + abs(s.tiles["cols"] - 176) / 400
        cost *= 1 + 0.1 * abs(s.stages - 2)
        cost *= {8: 1.0, 12: 1.05}.get(s.warps_m, 1.2)
        return cost * (0.97 if s.persistent else 1.0)


def search(machine=None, trials=60, **more):
    machine = machine or Machine()
    more = {"write": False, "progress": False, "shapes": SHAPES, "target": TARGET} | more
    effort = more.pop("effort", None) or Effort(seconds=1e9, trials=trials, threads=1)
    spec = more.pop("spec", SPEC)
    tuned = autotune(spec, evaluator=machine, clock=machine.clock, effort=effort, **more)
    return tuned, machine
