"""The table of counters: who counts, what it sees, in which unit it speaks.

A counter is a function from a training step to Work in FLOP. What each one reports beyond the theory, and
why, stands in `differences`. Nothing here imports torch; a counter's module is imported when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, cast

from measurements.records import MeasurementError, Phase, Work

if TYPE_CHECKING:
    from measurements.step import Step

__all__ = ["COUNTERS", "Counter", "CounterError"]

ALL = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)


class CounterError(MeasurementError):
    """A counter that cannot count this step here: one sentence that names what to change."""


@dataclass(frozen=True)
class Counter:
    """One FLOP counter.

    function: "module:function", imported when called. phases: what it sees.
    unit: what the package reports, "FLOP" or "MAC" (a multiply-add counted once); its adapter converts.
    device: where the step lives for it, "meta" (nothing is computed) or "cpu" (the package must compute).
    how: how it gets its numbers, and what it misses.
    package: the distribution that it comes in; None for ours.
    """

    name: str
    function: str
    phases: tuple[Phase, ...]
    unit: str
    device: str
    how: str
    package: str | None
    licence: str

    def version(self) -> str:
        """The installed version of the package; METHOD for ours."""
        if self.package is None:
            from measurements import METHOD

            return str(METHOD)
        return metadata.version(self.package)

    def why_not(self) -> str | None:
        """Why this counter cannot run here ("needs fvcore; has none"), or None."""
        try:
            self.version()
        except metadata.PackageNotFoundError:
            return f"needs {self.package}; has none"
        return None

    def __call__(self, step: Step) -> Work:
        """FLOP of one training step, as this counter says, in the phases that it sees.

        Raises: CounterError where the package is missing, cannot count the model, or has to compute on meta.
        """
        if reason := self.why_not():
            raise CounterError(f"counter {self.name} {reason}: pip install {self.package}")
        if self.device == "cpu" and any(weight.is_meta for weight in step.model.parameters()):
            raise CounterError(
                f"counter {self.name} has to compute; the model is on meta: build it on the CPU"
            )
        module, _, function = self.function.partition(":")
        count = cast("Callable[[Step], Work]", getattr(importlib.import_module(module), function))
        return count(step)


COUNTERS: dict[str, Counter] = {
    counter.name: counter
    for counter in (
        Counter(
            name="dispatch",
            function="measurements.counters.dispatch:count",
            phases=ALL,
            unit="FLOP",
            device="meta",
            how="dispatch: every ATen operation that really runs; an operation without a formula is an error",
            package=None,
            licence="MIT",
        ),
        Counter(
            name="closed_form",
            function="measurements.counters.closed_form:count",
            phases=ALL,
            unit="FLOP",
            device="meta",
            how="theory: layers and their shapes; sees layers that are modules, no functional calls",
            package=None,
            licence="MIT",
        ),
        Counter(
            name="fvcore",
            function="measurements.counters.fvcore:count",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="cpu",
            how="trace: torch.jit of a real forward pass; misses fused attention and recurrent layers",
            package="fvcore",
            licence="Apache-2.0",
        ),
        Counter(
            name="ptflops_pytorch",
            function="measurements.counters.ptflops:count_pytorch",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="cpu",
            how="hooks: on modules and functions, some seen by both; misses F.linear and F.conv2d",
            package="ptflops",
            licence="MIT",
        ),
        Counter(
            name="ptflops_aten",
            function="measurements.counters.ptflops:count_aten",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="meta",
            how="dispatch: mm, addmm, bmm and convolution; misses all other operations",
            package="ptflops",
            licence="MIT",
        ),
        Counter(
            name="flop_counter_mode",
            function="measurements.counters.flop_counter_mode:count",
            phases=(Phase.FORWARD, Phase.BACKWARD),
            unit="FLOP",
            device="meta",
            how="dispatch: matrix products, convolution, attention; misses mv, dot, fused attention on CPU",
            package="torch",
            licence="BSD-3-Clause",
        ),
    )
}
