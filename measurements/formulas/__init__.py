"""What each ATen operation costs.

`FORMULAS` (operator -> function of its shapes and plain arguments) and `FREE`.

Convention. A multiply-add is 2. Contractions (products of two operands, summed) are counted densely, padding
taps included; a dot product of length k is 2·k. All other floating-point work is 1 for each operation on one
element. Integer arithmetic throughout, so that a count past 2^63 is exact.

A key is "namespace.operator" without overload; in-place (`add_`), out= and list variants (`_foreach_add`)
share the row of the plain operator, by rule. What is in neither table costs, where PyTorch tags it as
pointwise, 1 for each output element (`pointwise.by_rule`); a view is free by its schema; everything else is
unknown and says so.

To add an operation: one row in the table of its kind, one line of derivation.
"""

from __future__ import annotations

from measurements.formulas.attention import ATTENTION
from measurements.formulas.contractions import CONTRACTIONS
from measurements.formulas.cost import Cost, Formula, contraction, elementwise
from measurements.formulas.factorizations import FACTORIZATIONS
from measurements.formulas.free import FREE, Free
from measurements.formulas.layers import LOSSES, NORMALIZATION, POOLING, RESAMPLING
from measurements.formulas.optimizers import OPTIMIZERS
from measurements.formulas.pointwise import POINTWISE
from measurements.formulas.quantized import QUANTIZED
from measurements.formulas.recurrent import RECURRENT
from measurements.formulas.reductions import REDUCTIONS
from measurements.formulas.regions import REGIONS

__all__ = ["FORMULAS", "FREE", "Cost", "Formula", "Free", "contraction", "elementwise"]

_TABLES = (
    CONTRACTIONS,
    ATTENTION,
    RECURRENT,
    FACTORIZATIONS,
    POINTWISE,
    REDUCTIONS,
    NORMALIZATION,
    POOLING,
    RESAMPLING,
    LOSSES,
    OPTIMIZERS,
    QUANTIZED,
    REGIONS,
)

FORMULAS: dict[str, Formula] = {
    name if "." in name else f"aten.{name}": formula for table in _TABLES for name, formula in table.items()
}
