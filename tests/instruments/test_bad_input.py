"""What cannot be counted ends in one clear sentence that names what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.instruments.small import WEIGHT, chain, linear, net, ones

if TYPE_CHECKING:
    from torch import Tensor


def refused(*arguments: Any, **options: Any) -> str:
    """The sentence that count_step ends in: one line, of which the caller's traceback shows the rest."""
    from measurements import count_step
    from measurements.records import MeasurementError

    with pytest.raises(MeasurementError) as error:
        count_step(*arguments, **options)
    sentence = str(error.value)
    assert "\n" not in sentence
    return sentence


def says(sentence: str, *words: str) -> bool:
    """Whether the sentence holds all of these words; shown with the words that are missing."""
    missing = [word for word in words if word not in sentence]
    assert not missing, f"{sentence!r} lacks {missing}"
    return True


def labels(*classes: int) -> Tensor:
    """Class numbers."""
    import torch

    return torch.tensor(classes)


# The model


def test_a_model_that_fails_in_its_forward() -> None:
    """Which model, on what, and its own words."""

    def fail(self: Any, x: Tensor) -> Tensor:
        raise ArithmeticError("no root\nof a negative number")

    assert says(
        refused(net(fail, a=linear()), ones()), "forward of Net", "2x4 float32", "ArithmeticError", "no root"
    )


def test_something_else_than_a_model() -> None:
    """A function, a class, a name."""
    import torch

    assert says(refused(lambda x: x, ones()), "function", "torch.nn.Module")
    assert says(refused("resnet50", ones()), "str", "torch.nn.Module")
    assert says(refused(torch.nn.Linear, ones()), "torch.nn.Module")


def test_a_model_with_nothing_to_train() -> None:
    """No parameters, or all frozen."""
    import torch

    frozen = linear()
    frozen.weight.requires_grad_(False)

    for model in (torch.nn.ReLU(), frozen):
        assert says(refused(model, ones()), "nothing to train", type(model).__name__, "requires_grad")


def test_a_model_whose_parameters_never_reach_the_loss() -> None:
    """Detached on the way."""
    assert says(
        refused(net(lambda self, x: self.a(x).detach(), a=linear()), ones()), "nothing to train", "Net"
    )


def test_a_model_whose_parameters_have_no_shape_yet() -> None:
    """Lazy modules get one at their first call."""
    import torch

    model = chain(torch.nn.LazyLinear(4))

    assert says(refused(model, ones()), "Sequential", "without a shape", "call it on its inputs once")
    model(ones())
    from measurements import count_step

    assert count_step(model, ones()).contraction.forward == 2 * 2 * 4 * 4


# Inputs


def test_an_input_of_the_wrong_shape() -> None:
    """The shape that it has, and the shapes that meet."""
    sentence = refused(linear(), ones(2, 5))

    assert says(sentence, "forward of Linear", "2x5", "inputs")


def test_too_many_inputs() -> None:
    """A tuple is as many arguments."""
    assert says(refused(linear(), (ones(), ones())), "forward of Linear", "TypeError", "inputs")


def test_inputs_under_a_wrong_name() -> None:
    """A dict is keyword arguments."""
    assert says(refused(linear(), {"image": ones()}), "forward of Linear", "image", "inputs")


def test_an_input_that_is_no_tensor() -> None:
    """None, or a number."""
    assert says(refused(linear(), None), "forward of Linear", "none", "inputs")
    assert says(refused(linear(), 3), "forward of Linear", "int", "inputs")


def test_an_input_in_another_number_format() -> None:
    """Doubles for a model of floats."""
    import torch

    assert says(refused(linear(), ones(dtype=torch.float64)), "forward of Linear", "float64")


def test_an_input_on_another_device() -> None:
    """Elements for a model that has none."""
    import torch

    with torch.device("meta"):
        model = linear()

    assert says(refused(model, ones()), "Linear", "cpu", "meta")


def test_an_empty_batch() -> None:
    """As a tensor, or somewhere among several."""
    for inputs in (ones(0, 4), (ones(0, 4),), {"input": ones(0, 4)}):
        assert says(refused(linear(), inputs), "(0, 4)", "batch", "at least 1")


# The loss


def test_a_loss_that_is_not_a_scalar() -> None:
    """The shape that it has."""
    assert says(refused(linear(), ones(), loss_fn=lambda out: out), "not a scalar", "2x4", "loss_fn")


@pytest.mark.parametrize("loss", [None, 3.0, "loss"], ids=["none", "number", "text"])
def test_a_loss_that_is_not_a_tensor(loss: object) -> None:
    """The kind that it is."""
    assert says(refused(linear(), ones(), loss_fn=lambda out: loss), "loss", "not a tensor", "loss_fn")


def test_a_loss_without_a_gradient() -> None:
    """A number that no parameter had a part in, or an integer."""
    assert says(
        refused(linear(), ones(), loss_fn=lambda out: out.detach().sum()), "nothing to train", "gradient"
    )
    assert says(refused(linear(), ones(), loss_fn=lambda out: out.argmax()), "gradient")


def test_a_complex_loss() -> None:
    """No gradient starts from one."""
    import torch

    sentence = refused(linear(), ones(), loss_fn=lambda out: out.to(torch.complex64).sum())

    assert says(sentence, "loss", "complex", "loss_fn")


def test_a_loss_function_that_fails() -> None:
    """With its own words, the outputs, and the targets."""

    def fail(out: Tensor, targets: object) -> Tensor:
        raise KeyError("weights")

    assert says(refused(linear(), ones(), 3, fail), "loss failed", "2x4", "int", "KeyError", "weights")


def test_a_loss_that_is_no_function() -> None:
    """The name of one, say."""
    assert says(refused(linear(), ones(), loss_fn="mse"), "loss", "str", "loss_fn")


@pytest.mark.parametrize("classes", [(0,), (0, 1, 2), (0, 9)], ids=["few", "many", "beyond"])
def test_targets_that_do_not_fit_the_outputs(classes: tuple[int, ...]) -> None:
    """Fewer or more than samples, or a class that is none of the 4."""
    assert says(refused(linear(), ones(), labels(*classes)), "loss failed", "2x4", "targets", "int64")


def test_outputs_with_nothing_to_sum() -> None:
    """Nothing at all, or integers alone."""
    for run in (lambda self, x: None, lambda self, x: self.a(x).argmax(-1), lambda self, x: []):
        assert says(refused(net(run, a=linear()), ones()), "loss_fn", "returns")


def test_outputs_with_nothing_to_hold_against_targets() -> None:
    """No tensor among them."""
    assert says(
        refused(net(lambda self, x: "label", a=linear()), ones(), labels(0, 1)), "returns str", "loss_fn"
    )


# Backward


def test_a_backward_that_fails() -> None:
    """A hook, or a function's own rule: which model, and the words of the error."""

    def run(self: Any, x: Tensor) -> Tensor:
        def fail(grad: Tensor) -> None:
            raise ArithmeticError("gradient lost")

        out = self.a(x)
        out.register_hook(fail)
        return out

    assert says(refused(net(run, a=linear()), ones()), "backward of Net", "ArithmeticError", "gradient lost")


# The optimizer


def test_an_unknown_optimizer() -> None:
    """The names that there are."""
    assert says(refused(linear(), ones(), optimizer="adm"), "'adm'", "sgd", "adam")


def test_something_else_than_an_optimizer() -> None:
    """A class, or a list of parameters."""
    import torch

    model = linear()
    for wrong in (torch.optim.SGD, list(model.parameters()), 0.1):
        assert says(refused(model, ones(), optimizer=wrong), "optimizer", "name", "instance")


def test_an_optimizer_without_parameters() -> None:
    """An instance whose list was emptied; by name, a model that trains nothing."""
    import torch

    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["params"].clear()

    assert says(refused(model, ones(), optimizer=optimizer), "optimizer", "no parameter")
    assert says(refused(torch.nn.ReLU(), ones(), optimizer="sgd"), "no parameter", "requires_grad")


def test_an_optimizer_of_another_model() -> None:
    """It would update nothing that this step trains."""
    import torch

    optimizer = torch.optim.SGD(linear().parameters(), lr=0.1)

    assert says(refused(linear(), ones(), optimizer=optimizer), "updates no parameter of Linear")


def test_an_update_that_fails() -> None:
    """With its own words."""
    import torch

    class Broken(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise ArithmeticError("no step")

    model = linear()

    sentence = refused(model, ones(), optimizer=Broken(model.parameters(), lr=0.1))

    assert says(sentence, "Broken", "ArithmeticError", "no step")


def test_an_optimizer_that_this_torch_lacks() -> None:
    """Which class it needs, and which torch there is."""
    from measurements.step import OPTIMIZERS, StepError, make_optimizer

    OPTIMIZERS["later"] = ("Later", {})
    try:
        with pytest.raises(StepError, match=r"needs torch\.optim\.Later; torch .* has none"):
            make_optimizer("later", linear().parameters())
    finally:
        del OPTIMIZERS["later"]


@pytest.mark.parametrize(
    ("name", "implementation", "words"),
    [
        ("adam", "quick", "unknown implementation 'quick'; have single, foreach, fused"),
        ("rmsprop", "fused", "no fused rmsprop"),
        ("lbfgs", "foreach", "no foreach lbfgs"),
    ],
)
def test_an_implementation_that_an_optimizer_lacks(name: str, implementation: str, words: str) -> None:
    """Fused or foreach, where there is none."""
    from measurements.step import StepError, make_optimizer

    with pytest.raises(StepError, match=words):
        make_optimizer(name, linear().parameters(), implementation)


# Operations


def test_an_unknown_operation_in_a_step() -> None:
    """Its name, its shapes, and how to give it a formula; not as a failure of the model."""
    import torch

    from measurements import UnknownOp, count_step

    @torch.library.custom_op("bad_input::mystery", mutates_args=(), schema="(Tensor x) -> Tensor")
    def mystery(x: Any) -> Any:
        return x + 1

    mystery.register_autograd(lambda ctx, grad: grad)
    model = net(lambda self, x: mystery(self.a(x)), a=linear())

    with pytest.raises(UnknownOp) as error:
        count_step(model, ones())
    assert says(str(error.value), "bad_input.mystery", "(2, 4)", "formulas=")
    with pytest.warns(UserWarning, match=r"bad_input\.mystery"):
        work = count_step(model, ones(), optimizer="sgd", on_unknown="warn")
    assert work.update == 2 * WEIGHT


def test_a_wrong_choice_about_unknown_operations() -> None:
    """The two that there are."""
    from measurements import count_step

    with pytest.raises(ValueError, match="unknown on_unknown 'skip'; have raise, warn"):
        count_step(linear(), ones(), on_unknown="skip")


def test_a_model_that_ends_the_program_ends_in_a_sentence():
    """Its forward calls sys.exit: the step fails, not whoever counts it."""
    import sys

    import torch

    from measurements import count_step

    class Exits(torch.nn.Linear):
        def forward(self, x):
            sys.exit(3)

    said = r"the forward of Exits failed on inputs of 1x2 .*: SystemExit: 3; give"
    with pytest.raises(ValueError, match=said):
        count_step(Exits(2, 2), torch.rand(1, 2))
