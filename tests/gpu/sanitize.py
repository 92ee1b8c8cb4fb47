"""Small launches of every kernel family, each once, for compute-sanitizer; or each five times over.

    python tests/gpu/sanitize.py                    # all of them; results are checked on the CPU
    for tool in memcheck racecheck synccheck; do
      compute-sanitizer --tool $tool --error-exitcode 9 python tests/gpu/sanitize.py --no-check
    done
    python tests/gpu/sanitize.py --determinism      # longer ones, five times: the same bits
    python tests/gpu/sanitize.py --list --only wgmma
    python tests/gpu/sanitize.py --dry              # without a GPU: what sm_90a's rules refuse

A kernel whose schedule the compiler refuses, where it spills, is named and left out.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from draw import Case

import flashcore as fc
from flashcore.arrays import Captured

Pairs = tuple[tuple[int, int], ...]

# Ends of tiles are crossed, and every stage of a ring is used more than once.
LENGTHS, MANY_KEYS = (200, 330), (130, 700)
SEQUENCES: Pairs = ((150, 200), (0, 7), (1, 1), (70, 0))


@dataclass(frozen=True)
class Launch:
    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, Any] | None = None  # None: the one that ships
    lengths: tuple[int, int] = LENGTHS
    heads: int = 2
    batch: int = 1
    sequences: Pairs = ()

    def spec_of(self) -> fc.AttentionSpec:
        return fc.AttentionSpec(**({"head_dim": 64} | self.spec))

    def case(self, index: int, times: int = 1) -> Case:
        """`times` makes everything longer."""
        spec = self.spec_of()
        pairs = tuple((rows * times, keys * times) for rows, keys in self.sequences)
        q_len, kv_len = (n * times for n in self.lengths)
        if pairs:
            q_len, kv_len = (max(pair[i] for pair in pairs) for i in (0, 1))
        return Case(
            index=index,
            batch=len(pairs) or self.batch,
            heads=spec.heads or self.heads,
            kv_heads=spec.kv_heads or self.heads,
            q_len=q_len,
            kv_len=kv_len,
            memory="dense",
            size=1.0,
            scale=None,
            return_lse=spec.lse,
            own_output=True,
            sequences=pairs,
            around=(3, 5) if spec.layout == "thd" else (0, 0),
            says_longest=True,
        )


def groups(warps: int, cols: int, stages: int = 2, **more: Any) -> dict[str, Any]:
    """A schedule of warpgroups."""
    return {
        "instruction": "wgmma",
        "copy": "tma",
        "softmax": "registers",
        "warps_m": warps,
        "warps_n": 1,
        "tiles": {"rows": 16 * warps, "cols": cols},
        "stages": stages,
        "keep_operands": False,
        "blocks_per_processor": 1,
        **more,
    }


def warps(rows: int, cols: int, stages: int = 2, **more: Any) -> dict[str, Any]:
    """A schedule of warps with 16 rows each."""
    return {
        "instruction": "mma_m16n8k16",
        "copy": "cp_async",
        "persistent": False,
        "warps_m": rows // 16,
        "tiles": {"rows": rows, "cols": cols},
        "stages": stages,
        "blocks_per_processor": 1,
        **more,
    }


def written() -> list[Launch]:
    """Masks and scores: bounds, a scan of tiles, look-ups."""
    ids = fc.Mask("ids[b, q_idx] == ids[b, kv_idx]", [Captured("ids", "i32", 2)])
    alibi = fc.Score("score + slopes[h] * float(kv_idx - q_idx)", [Captured("slopes", "f32", 1)])
    both = fc.sliding_window(100) | fc.prefix(40)
    bias = fc.Score("score + bias[b, h, q_idx, kv_idx]",
                    [Captured("bias", "bf16", 4, True, aligned_rows=True)])  # fmt: skip
    seen = fc.Mask("visible[q_idx, kv_idx]",
                   [Captured("visible", "i1", 2, True, aligned_rows=True)])  # fmt: skip
    return [
        Launch("documents", {"mask": ids}, lengths=(330, 330)),
        Launch("window and prefix", {"mask": both}, lengths=(330, 330)),
        Launch("alibi", {"mask": fc.causal(), "score": alibi}),
        Launch("softcap", {"mask": fc.causal(), "score": fc.softcap(8.0)}),
        Launch("dense bias and mask", {"mask": seen, "score": bias}, lengths=(200, 330)),
    ]


def launches() -> list[Launch]:
    causal = {"mask": fc.causal()}
    wide, widest = {"head_dim": 128}, {"head_dim": 256}
    packed = {"layout": "thd", "lse": True}
    padded = {"q_lens": True, "kv_lens": True, "lse": True}
    grouped = {"heads": 4, "kv_heads": 2, "lse": True, "layout": "bshd"}
    found = [
        Launch("wgmma 1 group", {}, groups(4, 64, blocks_per_processor=2)),
        Launch("wgmma 2 groups", {}, groups(8, 128)),
        Launch("wgmma 3 groups", {}, groups(12, 96)),
        Launch("wgmma causal", causal, groups(8, 112, 3, last_tiles_first=True)),
        Launch("wgmma peeled", causal, groups(8, 96, peel_masks=True)),
        Launch("wgmma window peeled", {"mask": fc.sliding_window(150)},
               groups(8, 32, peel_masks=True), (300, 500)),
        Launch("wgmma softcap stays", causal | {"score": fc.softcap(8.0)},
               groups(8, 64, persistent=True), (300, 300), 4, 25),
        Launch("wgmma ascending", causal, groups(8, 96, descending=False)),
        Launch("wgmma one after the other", {}, groups(8, 96, overlap_products=False)),
        Launch("wgmma scaled late", {}, groups(8, 96, rescale_before_product=True), MANY_KEYS),
        Launch("wgmma lazy", {}, groups(8, 96, lazy_scaling=True), MANY_KEYS),
        Launch("wgmma chains", causal, groups(8, 96, reduction_chains=4)),
        Launch("wgmma ping-pong", {}, groups(8, 96, ping_pong=True), MANY_KEYS),
        Launch("wgmma ping-pong, 3 groups", causal, groups(12, 64, ping_pong=True), MANY_KEYS),
        Launch("wgmma ping-pong, apart", {},
               groups(8, 96, ping_pong=True, overlap_products=False), MANY_KEYS),
        Launch("wgmma 4 stages", {}, groups(8, 64, 4), MANY_KEYS),
        Launch("wgmma stays", causal, groups(8, 64, persistent=True), (300, 300), 4, 25),
        Launch("wgmma stays, in turns", causal,
               groups(8, 64, persistent=True, ping_pong=True, grid_order="tiles_last"),
               (300, 300), 4, 25),
        Launch("wgmma stays, drawn", causal,
               groups(8, 64, persistent=True, tile_scheduler="dynamic", outer_stages=2),
               (300, 300), 4, 25),
        Launch("wgmma stays, two producer warps, drawn", causal,
               groups(8, 64, persistent=True, producer_warps=2, tile_scheduler="dynamic",
                      outer_stages=2, ping_pong=True), (300, 300), 4, 25),
        Launch("wgmma stays, loads shared", {},
               groups(8, 64, persistent=True, multicast_blocks=2), (300, 300), 4, 25),
        Launch("wgmma stays, loads shared and drawn", causal,
               groups(8, 64, persistent=True, multicast_blocks=2, tile_scheduler="dynamic",
                      grid_order="grouped"), (300, 300), 4, 25),
        Launch("wgmma tiles without keys", widest | causal,
               groups(8, 80, persistent=True, tile_scheduler="dynamic", staged_stores=False,
                      descending=False, peel_masks=True, last_tiles_first=True,
                      rescale_before_product=True, rescale_before_wait=True), (1035, 516), 20),
        Launch("wgmma stays, tiles end with the rows", causal | {"lse": True},
               groups(12, 80, persistent=True, tile_scheduler="dynamic", grid_order="grouped",
                      last_tiles_first=True, end_aligned_tiles=True, peel_masks=True,
                      lazy_scaling=True, rescale_before_product=True), (300, 300), 4, 25),
        Launch("wgmma tiles end with the rows", causal,
               groups(8, 64, end_aligned_tiles=True), (77, 500)),
        Launch("wgmma unstaged stores", {}, groups(8, 96, staged_stores=False)),
        Launch("wgmma loops of 2 blocks", causal, groups(4, 64, cluster_splits=2)),
        Launch("wgmma loops of 8 blocks", {"lse": True}, groups(8, 64, cluster_splits=8)),
        Launch("wgmma heads in turn", {"mask": fc.chunked(40)},
               groups(4, 64, positions_per_block=3), heads=5),
        Launch("wgmma heads in turn 2 queries", packed | causal,
               groups(8, 64, positions_per_block=2, outer_stages=2), sequences=SEQUENCES),
        Launch("wgmma no producer", causal | {"lse": True}, groups(4, 64, producer=False)),
        Launch("wgmma no producer 1 stage", causal, groups(4, 64, stages=1, producer=False),
               MANY_KEYS),
        Launch("wgmma no producer packed", packed | causal, groups(4, 64, producer=False),
               sequences=SEQUENCES),
        Launch("wgmma no producer loops of 2 blocks", causal,
               groups(4, 64, producer=False, cluster_splits=2)),
        Launch("wgmma 128", wide | causal, groups(8, 128)),
        Launch("wgmma 256", widest | causal, groups(8, 64)),
        Launch("wgmma 40 and 72", {"head_dim": 40, "head_dim_v": 72}, groups(8, 64)),
        Launch("wgmma f16", {"dtype": "f16"}, groups(8, 128)),
        Launch("wgmma 512", {"head_dim": 512} | causal,
               groups(4, 64, 1, warps_n=2, product_split="columns"), MANY_KEYS),
        Launch("wgmma grouped", grouped, groups(8, 96)),
        Launch("wgmma packed", packed | causal, groups(8, 64), sequences=SEQUENCES),
        Launch("wgmma padded", padded | causal, groups(8, 64), sequences=SEQUENCES),
        Launch("wgmma packed in waves", packed | causal, groups(8, 64, persistent=True),
               sequences=SEQUENCES),
        Launch("wgmma packed drawn", packed | causal,
               groups(8, 64, persistent=True, tile_scheduler="dynamic", grid_order="tiles_last",
                      outer_stages=2, last_tiles_first=True), sequences=SEQUENCES),
        Launch("wgmma packed drawn in groups", packed,
               groups(12, 64, persistent=True, tile_scheduler="dynamic", grid_order="grouped"),
               sequences=SEQUENCES),
        Launch("wgmma padded drawn", {"kv_lens": True, "lse": True} | causal,
               groups(8, 64, persistent=True, tile_scheduler="dynamic", grid_order="grouped"),
               sequences=tuple((150, keys) for _, keys in SEQUENCES)),
        Launch("mma", {}, warps(64, 64)),
        Launch("mma 1 stage", causal, warps(64, 64, 1)),
        Launch("mma 4 stages", causal, warps(64, 32, 4), MANY_KEYS),
        Launch("mma 32 rows", {}, {**warps(128, 64), "warps_m": 4}),
        Launch("mma across", causal, warps(64, 64, warps_n=2)),
        Launch("mma kept", wide, warps(64, 32, keep_operands=True)),
        Launch("mma peeled", causal, warps(64, 64, peel_masks=True)),
        Launch("mma 256", widest, warps(64, 32, 1)),
        Launch("mma shared", causal, warps(64, 32, softmax="shared")),
        Launch("mma vector", {}, warps(64, 32, copy="vector")),
        Launch("mma grouped", grouped, warps(64, 64)),
        Launch("mma packed", packed | causal, warps(64, 64), sequences=SEQUENCES),
        Launch("mma padded", padded | causal, warps(64, 64), sequences=SEQUENCES),
        Launch("wmma", causal, warps(64, 32, 1, instruction="wmma", softmax="shared", warps_n=2)),
        Launch("wmma vector", {},
               warps(32, 32, 1, instruction="wmma", softmax="shared", copy="vector")),
    ]  # fmt: skip
    for head_dim in (64, 128, 256):
        for name, mask in (("full", fc.full()), ("causal", fc.causal())):
            of = {"head_dim": head_dim, "mask": mask}
            found.append(Launch(f"shipped {head_dim} {name}", of))
    # Enough of everything for the schedules of large problems.
    capped = causal | {"score": fc.softcap(8.0)}
    window = {"mask": fc.sliding_window(150)}
    for name, of in (
        ("64 causal", causal),
        ("80 full", {"head_dim": 80}),
        ("96 causal", {"head_dim": 96} | causal),
        ("112 window", {"head_dim": 112} | window),
        ("128 full", wide),
        ("128 capped", wide | capped),
        ("144 full", {"head_dim": 144}),
        ("192 full", {"head_dim": 192}),
        ("256 capped", widest | capped),
        ("320 causal", {"head_dim": 320} | causal),
        ("512 full", {"head_dim": 512}),
    ):
        found.append(Launch(f"shipped {name}, many", of, None, (140, 1700), 4, 35))
    found += [
        Launch("shipped packed", packed | causal, sequences=SEQUENCES),
        Launch("shipped padded", padded, sequences=SEQUENCES),
        Launch("shipped one row", {"head_dim": 128}, lengths=(1, 1000)),
        *(Launch(f"shipped {part.name}", part.spec, None, part.lengths) for part in written()),
        *(Launch(f"wgmma {part.name}", part.spec, groups(8, 64), part.lengths)
          for part in written()),
    ]  # fmt: skip
    return found


def chosen(only: str | None) -> list[tuple[int, Launch]]:
    """With their numbers, on which what they are called with depends."""
    parts = only.split(",") if only else [""]
    return [
        (i, launch)
        for i, launch in enumerate(launches())
        if any(part in launch.name for part in parts)
    ]


def build(launch: Launch, target: str | None) -> Any:
    try:
        return fc.jit(launch.spec_of(), target=target, schedule=launch.schedule)
    except fc.Error as error:
        return error


def launch_once(kernel: Any, launch: Launch, index: int, options: argparse.Namespace) -> str | None:
    """What is wrong, or None."""
    from call import Call

    call = Call(launch.spec_of(), launch.case(index), 1, options.device)
    result = call.run(kernel)
    return None if options.no_check else call.wrong(*result, on="cpu")


def differing_bits(kernel: Any, launch: Launch, index: int, device: str) -> str | None:
    """Five calls into fresh memory give one result, bit for bit; else what differs."""
    import torch
    from call import Call

    first: list[Any] = []
    for repeat in range(5):
        call = Call(launch.spec_of(), launch.case(index, 4 if device == "cuda" else 1), 1, device)
        results = [x for x in call.run(kernel) if x is not None]
        bits = [x.contiguous().view(torch.uint8).clone() for x in results]
        first = first or bits
        for name, a, b in zip(("out", "lse"), first, bits, strict=False):
            if launch.spec.get("layout") == "thd" and name == "lse":
                continue  # rows of no sequence are not written there
            if not torch.equal(a, b):
                return f"{(a != b).sum().item()} bytes of {name} differ in call {repeat + 1}"
    return None


def dry(picked: list[tuple[int, Launch]], target: str) -> int:
    refused = 0
    for _, launch in picked:
        for reason in launch.spec_of().why_not(target, launch.schedule):
            refused += 1
            print(f"refused: {launch.name}: {reason}")
    print(f"{len(picked)} launches, {refused} reasons against them; nothing was run")
    return 1 if refused else 0


def main() -> int:
    fc.set_compile_mode("eager")  # every call runs the kernel that is its own
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="parts of names, by commas")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--determinism", action="store_true", help="five times, the same bits")
    parser.add_argument("--no-check", action="store_true", help="launch only")
    parser.add_argument("--dry", action="store_true", help="ask what is refused; needs no GPU")
    parser.add_argument("--target", help="default: that of the GPU; sm_90a for --dry")
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the emulator"
    )
    options = parser.parse_args()
    picked = chosen(options.only)
    if options.list:
        print("\n".join(launch.name for _, launch in picked))
        return 0
    if options.dry:
        return dry(picked, options.target or "sm_90a")
    with ThreadPoolExecutor() as pool:
        kernels = list(pool.map(lambda pair: build(pair[1], options.target), picked))
    failed = refused = 0
    for (index, launch), kernel in zip(picked, kernels, strict=True):
        if isinstance(kernel, fc.Error):
            refused += 1
            shipped = launch.schedule is None
            failed += shipped
            print(f"{'FAIL' if shipped else 'refused'} {launch.name}: {kernel}", flush=True)
            continue
        try:
            if options.determinism:
                problem = differing_bits(kernel, launch, index, options.device)
            else:
                problem = launch_once(kernel, launch, index, options)
        except Exception:
            problem = traceback.format_exc(limit=3).strip()
        failed += problem is not None
        print(f"FAIL {launch.name}: {problem}" if problem else f"ok   {launch.name}", flush=True)
    print(f"{len(picked)} launches, {failed} failed, {refused} refused")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
