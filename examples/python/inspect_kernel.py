"""What a kernel is made of: program, a pass, CUDA source, PTX, and its schedule."""

import flashcore as fc

spec = fc.AttentionSpec(head_dim=64, mask=fc.causal())
print("why not fp32?", *fc.AttentionSpec(head_dim=100, dtype="f32").why_not("sm_90"), sep="\n  ")

kernel = fc.jit(spec, target="sm_90", schedule={"tiles": {"rows": 64, "cols": 64}})
print("\nthe program, as its author wrote it:\n")
print(kernel.ir())
print("the same after its masks became loop bounds:\n")
print(kernel.ir("after:bound_masks"))
print(f"{len(kernel.source.splitlines())} lines of CUDA, of them the first of the kernel:\n")
start = kernel.source.index('extern "C"')
print("\n".join(kernel.source[start:].splitlines()[:12]))
print(f"\n{len(kernel.ptx.splitlines())} lines of PTX, {len(kernel.cubin):,} bytes of machine code")
print("resources:", kernel.resources)
print("schedule:", kernel.schedule.to_json())
