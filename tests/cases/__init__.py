"""Small steps, each of a kind that some FLOP counter was reported to count wrongly, and what is right.

Contraction FLOP, a multiply-add 2, dense, padding taps included; backward one product for each operand that
needs a gradient. What is right is hand arithmetic, written out as the product that it is. Nothing here
imports torch: models and inputs are text, evaluated when a case is run.
"""

from __future__ import annotations

from tests.cases import (
    attention,
    convolutions,
    functions,
    kernels,
    modules,
    networks,
    products,
    training,
)
from tests.cases.case import Case

__all__ = ["CASES", "Case"]

CASES: dict[str, Case] = {
    case.name: case
    for table in (convolutions, products, functions, attention, modules, training, kernels, networks)
    for case in table.CASES
}
"""All cases by name."""
