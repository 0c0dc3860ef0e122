"""All work of the studies' nets in closed form, and the layer table of study B."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from measurements.records import Flop, Phase
from measurements.theory.update import update_flop


@dataclass(frozen=True, slots=True)
class Unit:
    """All-work FLOP of one element-wise op as (a, b) of a + b·N, N the batch.

    per: what one unit is. forward, backward: functions of its extent k (elements reduced; 1 where there is
    nothing to reduce).
    """

    per: str
    forward: Callable[[int], tuple[int, int]]
    backward: Callable[[int], tuple[int, int]]


# A sum of n elements is n - 1; add, mul, div, exp, log, compare, negate are 1 each; reading, copying and
# spreading are 0.
UNITS: dict[str, Unit] = {
    # forward: 1 add. backward: the sum over the batch, N - 1 adds.
    "bias": Unit("an output of the layer", lambda k: (0, 1), lambda k: (-1, 1)),
    # forward: max(x, 0), 1 compare. backward: g where out > 0, 1 compare.
    "relu": Unit("an element", lambda k: (0, 1), lambda k: (0, 1)),
    # forward: the maximum of k taps, k - 1 compares. backward: g added where the maximum was, 1 add.
    "max_pool": Unit("an output", lambda k: (0, k - 1), lambda k: (0, 1)),
    # forward: a sum of k, k - 1 adds, and 1 div. backward: g / k for each of k elements, 1 div each.
    "average_pool": Unit("an output", lambda k: (0, k), lambda k: (0, k)),
    # a row of k classes. forward: maximum k - 1, sub k, exp k, sum k - 1, log 1, sub k.
    # backward: g - exp(out)·sum(g): sum k - 1, exp k, mul k, sub k.
    "log_softmax": Unit("a row", lambda k: (0, 5 * k - 1), lambda k: (0, 4 * k - 1)),
    # forward: the loss of a row is minus its target's log probability, 1 negate. backward: see the division.
    "negative_log_likelihood": Unit("a row", lambda k: (0, 1), lambda k: (0, 0)),
    # the mean of N rows, forward: the sum, N - 1 adds; backward: the gradient is spread, 0.
    "sum_over_the_batch": Unit("a loss", lambda k: (-1, 1), lambda k: (0, 0)),
    # forward: 1 div. backward: g / -N for each row, N divs; the sign goes into the divisor.
    "divide_by_the_batch": Unit("a loss", lambda k: (1, 0), lambda k: (0, 1)),
}


@dataclass(frozen=True, slots=True)
class Term:
    """FLOP of one op of a network at batch N: constant + per_sample · N."""

    phase: Phase
    module: str
    op: str
    constant: int
    per_sample: int
    contraction: bool = False

    def at(self, batch: int) -> int:
        """FLOP at that batch.

        Raises: ValueError where the batch is below 1.
        """
        if batch < 1:
            raise ValueError(f"Term.at: batch {batch}; give 1 or more")
        return self.constant + self.per_sample * batch


def flop_at(terms: Iterable[Term], batch: int) -> Flop:
    """All-work FLOP of a training step at that batch, by phase."""
    sums = dict.fromkeys(Phase, 0)
    for term in terms:
        sums[term.phase] += term.at(batch)
    return Flop(sums[Phase.FORWARD], sums[Phase.BACKWARD], sums[Phase.UPDATE])


def contraction_at(terms: Iterable[Term], batch: int) -> Flop:
    """Contraction FLOP of a training step at that batch, by phase."""
    return flop_at((term for term in terms if term.contraction), batch)


def linear_net(classes: int = 10, optimizer: str = "sgd", inputs: int = 3 * 224 * 224) -> tuple[Term, ...]:
    """All work of LinearNet and mean cross entropy: three layers with bias, ReLU behind the first two."""
    return _three_layers("LinearNet", inputs, classes, optimizer)


def one_net(classes: int = 10, optimizer: str = "sgd") -> tuple[Term, ...]:
    """All work of OneNet and mean cross entropy: LinearNet behind a single input."""
    return _three_layers("OneNet", 1, classes, optimizer)


def mlp(
    inputs: int = 24, hidden1: int = 16, hidden2: int = 12, outputs: int = 10, optimizer: str = "sgd"
) -> tuple[Term, ...]:
    """All work of B1's network and mean cross entropy: three layers without bias, ReLU behind each."""
    sizes = (inputs, hidden1, hidden2, outputs)
    parameters = inputs * hidden1 + hidden1 * hidden2 + hidden2 * outputs
    return (
        *_dense("MLP.fc1", *sizes[0:2], first=True, bias=False),
        *_terms("relu", "MLP", hidden1),
        *_dense("MLP.fc2", *sizes[1:3], bias=False),
        *_terms("relu", "MLP", hidden2),
        *_dense("MLP.fc3", *sizes[2:4], bias=False),
        *_terms("relu", "MLP", outputs),
        *_cross_entropy(outputs),
        _update(optimizer, parameters),
    )


def conv_net(classes: int = 10, optimizer: str = "sgd", side: int = 224) -> tuple[Term, ...]:
    """All work of ConvNet and mean cross entropy.

    Sizes: a 7x7 convolution of stride 2 and padding 3, and a 3x3 maximum of stride 2 and padding 1, each
    halve the side, rounded up.
    """
    conv1, pool1, conv2, pool2 = (-(-side // 2**halvings) for halvings in (1, 2, 3, 4))
    filter1, filter2 = 3 * 7 * 7, 32 * 7 * 7
    return (
        *_contraction("ConvNet.conv1", "convolution", 2 * 32 * conv1**2 * filter1, first=True),
        *_terms("relu", "ConvNet.relu", 32 * conv1**2),
        *_terms("max_pool", "ConvNet.maxpool", 32 * pool1**2, 3 * 3),
        *_contraction("ConvNet.conv2", "convolution", 2 * 64 * conv2**2 * filter2),
        *_terms("relu", "ConvNet.relu", 64 * conv2**2),
        *_terms("max_pool", "ConvNet.maxpool", 64 * pool2**2, 3 * 3),
        *_terms("average_pool", "ConvNet.avgpool", 64, pool2**2),
        *_dense("ConvNet.fc1", 64, classes),
        *_cross_entropy(classes),
        _update(optimizer, 32 * filter1 + 64 * filter2 + 64 * classes + classes),
    )


def _three_layers(name: str, inputs: int, classes: int, optimizer: str) -> tuple[Term, ...]:
    return (
        *_dense(f"{name}.fc1", inputs, 4096, first=True),
        *_terms("relu", name, 4096),
        *_dense(f"{name}.fc2", 4096, 128),
        *_terms("relu", name, 128),
        *_dense(f"{name}.fc3", 128, classes),
        *_cross_entropy(classes),
        _update(optimizer, (inputs + 1) * 4096 + (4096 + 1) * 128 + (128 + 1) * classes),
    )


def _contraction(module: str, op: str, flop: int, first: bool = False) -> Iterator[Term]:
    yield Term(Phase.FORWARD, module, op, 0, flop, contraction=True)
    yield Term(Phase.BACKWARD, module, f"{op}, weight gradient", 0, flop, contraction=True)
    if not first:
        yield Term(Phase.BACKWARD, module, f"{op}, input gradient", 0, flop, contraction=True)


def _dense(module: str, inputs: int, outputs: int, first: bool = False, bias: bool = True) -> Iterator[Term]:
    yield from _contraction(module, "linear", 2 * inputs * outputs, first)
    if bias:
        yield from _terms("bias", module, outputs)


def _terms(unit: str, module: str, count: int, extent: int = 1) -> Iterator[Term]:
    """Forward and backward of `count` units of that extent for each sample; a term that is 0 is left out."""
    rule = UNITS[unit]
    for phase, cost in ((Phase.FORWARD, rule.forward(extent)), (Phase.BACKWARD, rule.backward(extent))):
        if any(cost):
            yield Term(phase, module, unit, count * cost[0], count * cost[1])


def _cross_entropy(classes: int) -> Iterator[Term]:
    """Mean cross entropy of N rows: forward (5·classes - 1)·N + 2·N, backward (4·classes - 1)·N + N."""
    yield from _terms("log_softmax", "", 1, classes)
    for unit in ("negative_log_likelihood", "sum_over_the_batch", "divide_by_the_batch"):
        yield from _terms(unit, "", 1)


def _update(optimizer: str, parameters: int) -> Term:
    return Term(Phase.UPDATE, "", optimizer, update_flop(optimizer, parameters), 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of study B's table: what it computes and its FLOP; None where the table has an empty cell.

    exact_forward, exact_backward: this module's own all-work count; it differs from the study's in the loss
    row alone.
    """

    name: str
    forward_formula: str
    forward: int | None
    backward_formula: str
    backward: int | None
    exact_forward: int | None
    exact_backward: int | None


def study_table(inputs: int, hidden1: int, hidden2: int, outputs: int, batch: int) -> tuple[Row, ...]:
    """FLOP of each row of study B's table: a network of two hidden layers, no bias, ReLU behind all layers.

    The study writes its loss row as outputs·batch, an order of magnitude; mean cross entropy is derived in
    UNITS.
    Source: Hobbhahn and Sevilla, What's the backward-forward FLOP ratio for neural networks?, section Theory.
    """
    i, h1, h2, o, n = inputs, hidden1, hidden2, outputs, batch
    loss = flop_at(_cross_entropy(o), n)
    update = update_flop("sgd", i * h1 + h1 * h2 + h2 * o)

    def row(name: str, forward: str, f: int | None, backward: str, b: int | None) -> Row:
        return Row(name, forward, f, backward, b, f, b)

    return (
        row("Input", "A1=W1@X", 2 * i * h1 * n, "dL/dW1=δ1@X", 2 * i * h1 * n),
        row("ReLU", "A1R=ReLU(A1)", h1 * n, "δ1=dδ1R/dA1", h1 * n),
        row("Derivative", "", None, "δ1R=dL/dA2=W2@δ2", 2 * h1 * h2 * n),
        row("Hidden1", "A2=W2@A1R", 2 * h1 * h2 * n, "dL/dW2=δ2@A1R", 2 * h1 * h2 * n),
        row("ReLU", "A2R=ReLU(A2)", h2 * n, "δ2=dδ2R/dA2", h2 * n),
        row("Derivative", "", None, "δ2R=dL/dA3=W3@δ3", 2 * h2 * o * n),
        row("Hidden2", "A3=W3@A2R", 2 * h2 * o * n, "dL/dW3=δ3@A2R", 2 * h2 * o * n),
        row("ReLU", "A3R=ReLU(A3)", o * n, "δ3=dδ3R/dA3", o * n),
        Row("Loss", "L=loss(A3R,Y)", o * n, "δ3R=dL/dA3R", o * n, loss.forward, loss.backward),
        row("Update", "", None, "W+=lr*δW", update),
    )
