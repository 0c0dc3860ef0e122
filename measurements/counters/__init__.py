"""The table of counters: who counts, what it sees, in which unit it speaks.

A counter is a function from a training step to Work in FLOP. What each one reports beyond the theory, and
why, stands in `differences`. Nothing here imports torch; a counter's module is imported when it is called.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, cast

from measurements.counters import limit
from measurements.counters.limit import CounterError
from measurements.records import Phase, Work

if TYPE_CHECKING:
    from measurements.step import Step

__all__ = ["COUNTERS", "Counter", "CounterError"]

ALL = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)


@dataclass(frozen=True)
class Counter:
    """One FLOP counter.

    function: "module:function", imported when called. phases: what it sees.
    unit: what the package reports, "FLOP" or "MAC" (a multiply-add counted once); its adapter converts.
    device: where the step lives for it, "meta" (nothing is computed) or "cpu" (the package must compute).
    how: how it gets its numbers, and what it misses.
    package: the distribution that it comes in; None for ours.
    evaluates: whether the package switches the model to evaluation mode.
    apart: whether it runs in a process of its own, since it leaves state behind or shares a module's name.
    """

    name: str
    function: str
    phases: tuple[Phase, ...]
    unit: str
    device: str
    how: str
    package: str | None
    licence: str
    evaluates: bool = False
    apart: bool = False

    def version(self) -> str:
        """The installed version of the package; METHOD for ours."""
        if self.package is None:
            from measurements import METHOD

            return str(METHOD)
        found = next(iter(metadata.distributions(name=self.package, path=[*self.folders(), *sys.path])), None)
        if found is None:
            raise metadata.PackageNotFoundError(self.package)
        return found.version

    def folders(self) -> list[str]:
        """The package's own folder, where it is not installed among all others."""
        own = self._own_folder()
        return [str(own)] if self.apart and own.is_dir() else []

    def _own_folder(self) -> Path:
        return Path(sys.prefix) / "apart" / str(self.package)

    def why_not(self) -> str | None:
        """Why this counter cannot run here ("needs fvcore; has none"), or None."""
        try:
            self.version()
        except metadata.PackageNotFoundError:
            return f"needs {self.package}; has none"
        return None

    def __call__(self, step: Step) -> Work:
        """FLOP of one training step, as this counter says, in the phases that it sees.

        Raises: CounterError where the package is missing, cannot count the model, does not come back, or has
        to compute on meta.
        """
        if reason := self.why_not():
            where = f"--no-deps --target {self._own_folder()} " if self.apart else ""
            raise CounterError(f"counter {self.name} {reason}: pip install {where}{self.package}")
        if self.device == "cpu" and any(weight.is_meta for weight in step.model.parameters()):
            raise CounterError(
                f"counter {self.name} has to compute; the model is on meta: build it on the CPU"
            )
        if self.apart:
            from measurements.counters import apart

            return apart.count(self.name, self.function, self.folders(), step, limit.SECONDS)
        module, _, function = self.function.partition(":")
        count = cast("Callable[[Step], Work]", getattr(importlib.import_module(module), function))
        if self.package is None:
            return count(step)
        with limit.limited(self.name, limit.SECONDS):
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
            evaluates=True,
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
            evaluates=True,
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
        Counter(
            name="torch_profiler",
            function="measurements.counters.profilers:count_torch",
            phases=(Phase.FORWARD, Phase.BACKWARD),
            unit="FLOP",
            device="cpu",
            how="operators and their sizes: conv2d, products, add, mul; misses backward of convolution",
            package="torch",
            licence="BSD-3-Clause",
        ),
        Counter(
            name="autograd_profiler",
            function="measurements.counters.profilers:count_autograd",
            phases=(Phase.FORWARD, Phase.BACKWARD),
            unit="FLOP",
            device="cpu",
            how="operators and their sizes: conv2d, products, add, mul; misses backward of convolution",
            package="torch",
            licence="BSD-3-Clause",
        ),
        Counter(
            name="pthflops",
            function="measurements.counters.pthflops:count",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="meta",
            how="trace: torch.fx; modules by type, functions named add, mul, matmul; misses F.linear, bmm",
            package="pthflops",
            licence="BSD-3-Clause",
            evaluates=True,
        ),
        Counter(
            name="thop",
            function="measurements.counters.thop:count",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="meta",
            how="hooks: on modules of known types; misses every function, attention, and subclasses",
            package="thop",
            licence="MIT",
            evaluates=True,
            apart=True,
        ),
        Counter(
            name="ultralytics_thop",
            function="measurements.counters.thop:count",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="meta",
            how="hooks: on modules and their subclasses, and on matmul, linear, einsum, attention",
            package="ultralytics-thop",
            licence="AGPL-3.0",
            evaluates=True,
            apart=True,
        ),
        Counter(
            name="calflops",
            function="measurements.counters.calflops:count",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="meta",
            how="functions replaced: of torch.nn.functional, and matmul; misses @, bmm, mm, attention",
            package="calflops",
            licence="MIT",
            evaluates=True,
            apart=True,
        ),
        Counter(
            name="torchinfo",
            function="measurements.counters.torchinfo:count",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="meta",
            how="parameters: of convolutions times positions, of all else times samples; misses functions",
            package="torchinfo",
            licence="MIT",
            evaluates=True,
        ),
        Counter(
            name="torchprofile",
            function="measurements.counters.torchprofile:count",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="cpu",
            how="trace: torch.jit of a real forward pass; misses padding='same', gated recurrent units",
            package="torchprofile",
            licence="MIT",
        ),
        Counter(
            name="deepspeed",
            function="measurements.counters.deepspeed:count",
            phases=(Phase.FORWARD,),
            unit="MAC",
            device="cpu",
            how="functions replaced: of torch and torch.nn.functional; misses einsum, recurrent layers",
            package="deepspeed",
            licence="Apache-2.0",
            apart=True,
        ),
    )
}
