"""The layers of a model with the shapes that they see: hooks in, plain rows out.

A row is one call of one layer, as the closed form wants it. What runs outside of such layers (a product
written with `@`, a layer whose `.forward()` is called directly, a layer whose weight another module uses) has
no row; `unseen` names the modules that hold parameters of their own and have no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.rnn import PackedSequence

from measurements.records import Layer

Arguments = dict[str, object]
Settings = tuple[tuple[str, object], ...]


def layers_of(model: nn.Module, inputs: Tensor | tuple[object, ...] | Mapping[str, object]) -> list[Layer]:
    """One row for each call of a layer of a known kind, in order, from one forward pass with gradients on.

    inputs: positional arguments (one tensor will do) or, by name, a mapping.
    Names go from the class of the model on ("ResNet.layer1.0.conv1"); a shared layer has the name under which
    it is first found. Hooks, buffers, random state and mode are afterwards as before, also when the forward
    pass fails.
    """
    rows: list[Layer] = []
    with ExitStack() as undo, torch.enable_grad(), _kept(model):
        for path, module in model.named_modules():
            kind = _kind(module)
            if kind:
                hook = partial(_note, rows, _name(model, path), kind)
                handle = module.register_forward_hook(hook, with_kwargs=True, prepend=True)
                undo.callback(handle.remove)
        if isinstance(inputs, Mapping):
            model(**inputs)
        else:
            model(*(inputs if isinstance(inputs, tuple | list) else (inputs,)))
    return rows


def unseen(model: nn.Module) -> list[str]:
    """Names of the modules with parameters of their own, of a kind that the closed form does not know.

    Normalization, activation and embedding multiply each element by a parameter or read it: no contraction.
    """
    return [
        _name(model, path)
        for path, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
        and not _kind(module)
        and not isinstance(module, WITHOUT_CONTRACTION)
    ]


WITHOUT_CONTRACTION = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU, nn.Embedding)


def _nothing(module: nn.Module, given: Arguments) -> Settings:
    return ()


def _bilinear(module: nn.Module, given: Arguments) -> Settings:
    return (("x2_needs_gradient", _needs(given.get("input2"))),)


def _recurrent(module: nn.Module, given: Arguments) -> Settings:
    assert isinstance(module, nn.RNNBase)
    x = given["input"]
    if isinstance(x, PackedSequence):
        positions, sequences = x.data.shape[0], int(x.batch_sizes[0])
    else:
        assert isinstance(x, Tensor)
        positions = x.shape[:-1].numel()
        sequences = 1 if x.dim() == 2 else x.shape[0 if module.batch_first else 1]
    state = given.get("hx")
    hidden, cell = state if isinstance(state, tuple) else (state, None)
    return (
        ("hidden_size", module.hidden_size),
        ("layers", module.num_layers),
        ("directions", 2 if module.bidirectional else 1),
        ("proj_size", module.proj_size),
        ("positions", positions),
        ("sequences", sequences if positions else 0),
        ("trainable", _trainable(module)),
        ("state_needs_gradient", _needs(hidden)),
        ("cell_needs_gradient", _needs(cell)),
    )


def _cell(module: nn.Module, given: Arguments) -> Settings:
    state = given.get("hx")
    hidden = state[0] if isinstance(state, tuple) else state
    return (("trainable", _trainable(module)), ("state_needs_gradient", _needs(hidden)))


def _attention(module: nn.Module, given: Arguments) -> Settings:
    assert isinstance(module, nn.MultiheadAttention)
    query, key, value = (given[name] for name in ("query", "key", "value"))
    assert isinstance(query, Tensor)
    assert isinstance(key, Tensor)
    assert isinstance(value, Tensor)
    batched = query.dim() == 3
    along = 1 if batched and module.batch_first else 0
    return (
        ("batch", query.shape[1 - along] if batched else 1),
        ("queries", query.shape[along]),
        ("keys", key.shape[along]),
        ("extra_keys", (module.bias_k is not None) + module.add_zero_attn),
        ("key_width", key.shape[-1]),
        ("value_width", value.shape[-1]),
        ("key_needs_gradient", _needs(key)),
        ("value_needs_gradient", _needs(value)),
        ("trainable", _trainable(module)),
    )


# kind: (arguments of its forward, the weight that stands for it, what else the closed form asks of it)
KINDS: dict[str, tuple[tuple[str, ...], str, Callable[[nn.Module, Arguments], Settings]]] = {
    "Linear": (("input",), "weight", _nothing),
    "Conv1d": (("input",), "weight", _nothing),
    "Conv2d": (("input",), "weight", _nothing),
    "Conv3d": (("input",), "weight", _nothing),
    "ConvTranspose1d": (("input",), "weight", _nothing),
    "ConvTranspose2d": (("input",), "weight", _nothing),
    "ConvTranspose3d": (("input",), "weight", _nothing),
    "Bilinear": (("input1", "input2"), "weight", _bilinear),
    "LSTM": (("input", "hx"), "weight_ih_l0", _recurrent),
    "GRU": (("input", "hx"), "weight_ih_l0", _recurrent),
    "RNN": (("input", "hx"), "weight_ih_l0", _recurrent),
    "LSTMCell": (("input", "hx"), "weight_ih", _cell),
    "GRUCell": (("input", "hx"), "weight_ih", _cell),
    "RNNCell": (("input", "hx"), "weight_ih", _cell),
    "MultiheadAttention": (("query", "key", "value"), "out_proj.weight", _attention),
    "Embedding": (("input",), "weight", _nothing),
}


def _note(
    rows: list[Layer],
    name: str,
    kind: str,
    module: nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    out: object,
) -> None:
    """Append the row of one call."""
    names, weight_name, settings = KINDS[kind]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    x, result = _tensor(given[names[0]]), _tensor(out)
    owner, _, attribute = weight_name.rpartition(".")
    weight = getattr(module.get_submodule(owner), attribute)
    rows.append(
        Layer(
            name=name,
            kind=kind,
            x=tuple(x.shape),
            weight=tuple(weight.shape),
            out=tuple(result.shape),
            groups=getattr(module, "groups", 1),
            bias=any("bias" in parameter for parameter, _ in module.named_parameters()),
            input_needs_gradient=_needs(x),
            weight_needs_gradient=_needs(weight),
            settings=(*settings(module, given), *((("complex", True),) if x.is_complex() else ())),
        )
    )


def _kind(module: nn.Module) -> str | None:
    """The class in torch.nn that the module is or extends, where the closed form knows it."""
    for ancestor in type(module).__mro__:
        if ancestor.__name__ in KINDS and ancestor.__module__.startswith("torch.nn.modules."):
            return ancestor.__name__
    return None


def _name(model: nn.Module, path: str) -> str:
    return f"{type(model).__name__}.{path}" if path else type(model).__name__


def _tensor(value: object) -> Tensor:
    """The first tensor of what a layer was given or gave."""
    while isinstance(value, tuple | list):  # a PackedSequence is a tuple whose first item is its data
        value = value[0]
    assert isinstance(value, Tensor)
    return value


def _needs(value: object) -> bool:
    """Whether backward must produce its gradient: it asks for one, and gradients are on during the call."""
    return isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled()


def _trainable(module: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, parameter in module.named_parameters() if _needs(parameter))


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Buffers and random state afterwards as before: in train mode a forward pass moves BatchNorm's."""
    owners = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    contents = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    places = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    try:
        with torch.random.fork_rng(devices=[place for place in places if place.type == "cuda"]):
            yield
    finally:
        with torch.no_grad():
            for buffer, content in contents:
                buffer.copy_(content)
        for owned, before in owners:
            owned.clear()
            owned.update(before)
