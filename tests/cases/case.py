"""What a case is, and where faults are reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from measurements.records import Work
    from measurements.step import Step

PYTORCH = "https://github.com/pytorch/pytorch/"
BENCHMARK = "https://github.com/pytorch/benchmark/"
FVCORE = "https://github.com/facebookresearch/fvcore/"
PTFLOPS = "https://github.com/sovrasov/flops-counter.pytorch/"
THOP = "https://github.com/Lyken17/pytorch-OpCounter/"
ULTRALYTICS = "https://github.com/ultralytics/thop/"
CALFLOPS = "https://github.com/MrYxJ/calculate-flops.pytorch/"
DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed/"
TORCHPROFILE = "https://github.com/zhijian-liu/torchprofile/"
LITGPT = "https://github.com/Lightning-AI/litgpt/"
MMENGINE = "https://github.com/open-mmlab/mmengine/"
RATIO = "https://www.lesswrong.com/posts/fnjKpBoWJXcSDwhZk/what-s-the-backward-forward-flop-ratio-for-neural-networks"


@dataclass(frozen=True)
class Case:
    """One small step, what is right, and where somebody reported a counter that got its kind wrong.

    model, inputs: Python text in the words of `vocabulary.names()`, evaluated when the case is run.
    forward, backward: contraction FLOP; backward None: none is meant.
    update: contraction FLOP of an optimizer's step, where the model's forward takes one.
    recomputed: contraction FLOP that run again; None: that depends on the kernel.
    all_work: there is no contraction; `forward` is all work of the call, a published leading term.
    needs: what not every machine or torch has, a key of `building.NEEDS`.
    within: Python text of a context in which the case is built and run.
    no_model: what it is instead of a model ("an optimizer's step"): for counters that watch any code.
    """

    name: str
    kind: str
    model: str
    inputs: str
    forward: int
    backward: int | None
    source: str
    update: int | None = None
    recomputed: int | None = None
    all_work: bool = False
    needs: str = ""
    within: str = ""
    no_model: str = ""

    def why_not(self) -> str | None:
        """Why it cannot run here ("needs torch.optim.Muon; has none"), or None."""
        from tests.cases.building import NEEDS

        return None if not self.needs or NEEDS[self.needs]() else f"needs {self.needs}; has none"

    @contextmanager
    def ready(self) -> Iterator[None]:
        """A block in which the case can be built and run."""
        from tests.cases.building import evaluate

        if not self.within:
            yield
            return
        with evaluate(self.within):
            yield

    def step(self, device: str = "cpu") -> Step:
        """The case as a training step: the loss is the sum of all outputs."""
        from tests.cases.building import step

        return step(self.model, self.inputs, self.within, device)

    def count(self) -> Work:
        """What `counting()` says of it: forward, and backward where one is meant."""
        from measurements import counting

        step = self.step()
        with counting() as work:
            if self.all_work:
                step.call()
                return work.frozen()
            loss = step.forward()
            if self.backward is not None:
                step.backward(loss)
        return work.frozen()
