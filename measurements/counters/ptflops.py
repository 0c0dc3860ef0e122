"""ptflops, both back ends (MIT).

Unit: MAC. Mode: evaluation, which the package itself switches to.

count_pytorch: hooks on modules, and functions of torch and torch.nn.functional replaced by counting ones.
    Device: CPU; on meta it counts Linear twice, because meta kernels call replaced functions. No gradients.
    Reports MAC per sample: the hooks' sum divided by the batch, plus the functions' sum, not divided. The
    adapter multiplies by the batch N, so that what a function counted counts N times; `differences` has it.
    Rows: one for each module, and one "functional" for all functions together.
count_aten: a dispatch mode with formulas for mm, addmm, bmm, matmul and convolution, biases included.
    Device: any, meta included. The package's own function leaves hooks on the model; its mode alone does not.
    Rows: one for each operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from ptflops import get_model_complexity_info
from ptflops.aten_engine import FlopCounterMode
from torch import nn

from measurements.counters.adapter import Call, functions_kept, left_as_found, macs, named, silenced

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step


def count_pytorch(step: Step) -> Work:
    """FLOP of the forward pass by ptflops' hooks and functions, two for each of its MACs, by module.

    Raises: CounterError with the package's last words where the forward pass fails in it.
    """
    call = Call(step)
    first, by_module = call.tensors[0], {}

    def construct(_resolution: tuple[int, ...]) -> torch.Tensor:
        # Called when all hooks of the package are in place: a hook from here runs after them.
        call.register_forward_hook(lambda *_: by_module.update(_by_module(call)))
        return first

    with (
        left_as_found(step),
        named("ptflops_pytorch", step),
        functions_kept(),
        torch.no_grad(),
        silenced() as said,
    ):
        per_sample, _ = get_model_complexity_info(
            call,
            (1,),
            print_per_layer_stat=False,
            as_strings=False,
            input_constructor=construct,
            backend="pytorch",
        )
        if per_sample is None:  # the package printed the error and its traceback, which ends with the error
            raise RuntimeError(said.getvalue().strip().splitlines()[-1])
    functional = int(per_sample) * len(first) - sum(by_module.values())
    rows = [("hook", call.path(name), own) for name, own in by_module.items()]
    return macs([*rows, ("functional", "", functional)])


def count_aten(step: Step) -> Work:
    """FLOP of the forward pass by ptflops' dispatch mode, two for each of its MACs, by operator."""
    counter = FlopCounterMode()
    with left_as_found(step), named("ptflops_aten", step):
        step.model.eval()
        with counter:
            step.call()
    return macs([(str(op), "", own) for op, own in counter.flop_counts["Global"].items()])


def _by_module(module: nn.Module, name: str = "") -> dict[str, int]:
    """MAC by module, as ptflops adds them up: a module with a count of its own hides its children."""
    if hasattr(module, "__flops__"):
        return {name: int(module.__flops__)}  # type: ignore[arg-type]
    found: dict[str, int] = {}
    for child_name, child in module.named_children():
        found.update(_by_module(child, f"{name}.{child_name}" if name else child_name))
    return found
