"""The theory as a counter: layers and shapes, no operation watched.

Sees the contractions of layers that are modules; what a model calls as a function (F.linear, matmul) it
misses, and it warns of modules that hold weights and are of no known kind. The update is the optimizer's
cost per parameter times the parameters that train, in the steady state; it supposes that every one of them
gets a gradient.
"""

from __future__ import annotations

import inspect
import math
import warnings
from typing import TYPE_CHECKING, Any

from measurements import theory
from measurements.counters import CounterError
from measurements.counters.adapter import named
from measurements.layers import layers_of, unseen
from measurements.records import Work

if TYPE_CHECKING:
    from torch import optim

    from measurements.step import Step

# Settings that switch arithmetic on; the values of all others cost nothing.
SWITCHES = ("momentum", "dampening", "nesterov", "weight_decay", "amsgrad", "centered", "maximize")


def count(step: Step) -> Work:
    """FLOP of a training step in closed form: forward and backward by layer, and the update.

    Raises: CounterError where a layer or the optimizer has no closed form.
    """
    if unknown := unseen(step.model):
        warnings.warn(
            f"closed_form does not know {', '.join(unknown)}: contractions there are not counted",
            stacklevel=2,
        )
    with named("closed_form", step):
        return theory.closed_form(layers_of(step.model, step.inputs), update_of(step.optimizer))


def update_of(optimizer: optim.Optimizer | None) -> int:
    """FLOP of one update; 0 without an optimizer.

    Raises: CounterError where the theory has no cost for the optimizer with these settings.
    """
    flop = 0
    for group in optimizer.param_groups if optimizer else ():
        sizes = [math.prod(weight.shape) for weight in group["params"] if weight.requires_grad]
        flop += theory.update_flop(optimizer_name(type(optimizer), group), sum(sizes), len(sizes))
    return flop


def optimizer_name(kind: type, settings: dict[str, Any]) -> str:
    """The name under which the theory knows an optimizer of this class with these settings.

    Raises: CounterError where it knows none.
    """
    defaults = {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}
    on = {switch for switch in SWITCHES if settings.get(switch)}
    for name, row in theory.UPDATES.items():
        expected = {switch for switch in SWITCHES if row.settings.get(switch, defaults.get(switch))}
        if row.optimizer == kind.__name__ and on == expected:
            return name
    said = ", ".join(f"{switch}={settings[switch]}" for switch in SWITCHES if switch in on)
    raise CounterError(
        f"closed_form has no update cost for {kind.__name__}({said}); have {', '.join(theory.UPDATE_COST)}: "
        "leave the optimizer out, or count with dispatch"
    )
