"""What a model, an optimizer and the process are made of, as values that compare."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.instruments.small import chain, linear, net, ones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn


def bits(x: Any) -> object:
    """Identity, version and elements of a tensor; a meta tensor has no elements."""
    return id(x), x._version, None if x.device.type == "meta" else x.detach().clone().reshape(-1).tolist()


def of_model(model: nn.Module) -> dict[str, object]:
    """Everything that a module holds, at every depth."""
    parts: dict[str, object] = {}
    for path, module in model.named_modules():
        parts[f"{path} mode"] = module.training
        parts[f"{path} attributes"] = sorted(vars(module))
        for kind in ("_parameters", "_buffers"):
            for name, x in getattr(module, kind).items():
                parts[f"{path} {kind} {name}"] = None if x is None else (bits(x), x.requires_grad)
                grad = None if x is None else x.grad
                parts[f"{path} gradient {name}"] = None if grad is None else bits(grad)
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            parts[f"{path} {kind}"] = list(getattr(module, kind))
    return parts


def of_optimizer(optimizer: Any) -> dict[str, object]:
    """State, groups and attributes."""
    import torch

    def plain(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return bits(value)
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    groups = [{key: plain(value) for key, value in group.items()} for group in optimizer.param_groups]
    state = {id(key): plain(value) for key, value in optimizer.state.items()}
    names = {name: id(value) for name, value in vars(optimizer).items()}
    return {
        "state": state,
        "groups": groups,
        "names": names,
        "group ids": [id(g) for g in optimizer.param_groups],
    }


def functions_of_torch() -> Iterator[tuple[str, str, Any]]:
    """Where it is, its name, and itself: of the functions that a counter might replace."""
    import torch
    from torch.utils import checkpoint

    functional = torch, torch.nn.functional, torch.nn.utils, torch.autograd, checkpoint
    for room in (*functional, torch.Tensor, torch.nn.Module, checkpoint._recomputation_hook):
        yield from ((room.__name__, name, value) for name, value in vars(room).items() if callable(value))


def of_process() -> dict[str, object]:
    """Random numbers, modes, global hooks, and the functions of torch that a counter might replace."""
    import torch
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    hooks = {
        f"{room.__name__}.{name}": list(value)
        for room in (module, optimizer)
        for name, value in vars(room).items()
        if name.startswith("_global") and hasattr(value, "keys")
    }
    assert len(hooks) >= 8, "torch keeps its global hooks elsewhere"
    functions = {f"{room}.{name}": id(value) for room, name, value in functions_of_torch()}
    optimizers = {
        f"{kind.__name__}.step": id(kind.step) for kind in vars(torch.optim).values() if hasattr(kind, "step")
    }
    return {
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dispatch modes": list(_get_current_dispatch_mode_stack()),
        "function modes": list(_get_current_function_mode_stack()),
        "saved tensor hooks": torch._C._autograd._saved_tensors_hooks_is_enabled(),
        "default dtype": torch.get_default_dtype(),
        "hooks": hooks,
        "functions": functions,
        "optimizers": optimizers,
    }


def changed(before: dict[str, object], after: dict[str, object]) -> dict[str, tuple[object, object]]:
    """What differs, by name."""
    names = before.keys() | after.keys()
    return {
        name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    }


def left_behind(code: Callable[[], object], model: nn.Module, optimizer: Any = None) -> dict[str, object]:
    """What differs after the code."""

    def now() -> dict[str, object]:
        parts = {f"model {name}": value for name, value in of_model(model).items()}
        if optimizer is not None:
            parts |= {f"optimizer {name}": value for name, value in of_optimizer(optimizer).items()}
        return parts | of_process()

    before = now()
    code()
    return changed(before, now())


def versions_aside(left: dict[str, Any]) -> dict[str, Any]:
    """What differs in more than versions: a tensor that was written and written back counts two writes."""

    def without(value: Any) -> Any:
        if isinstance(value, tuple) and len(value) == 3 and isinstance(value[1], int):
            return value[0], value[2]
        if isinstance(value, dict):
            return {key: without(item) for key, item in value.items()}
        return type(value)(map(without, value)) if isinstance(value, list | tuple) else value

    return {name: pair for name, pair in left.items() if without(pair[0]) != without(pair[1])}


def everything() -> nn.Module:
    """Normalization, dropout, spectral norm, a buffer that forward replaces and one that it writes into."""
    import torch

    def run(self: Any, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        self.sums.add_(x.sum())
        noise = torch.rand(4, device=x.device) + random.random()
        return self.layers(x) * noise

    layers = chain(
        torch.nn.utils.parametrizations.spectral_norm(linear()),
        torch.nn.BatchNorm1d(4),
        torch.nn.Dropout(0.5),
        linear(bias=True),
    )
    model = net(run, layers=layers)
    model.register_buffer("seen", torch.zeros(()))
    model.register_buffer("sums", torch.zeros(()))
    return model


def trained(model: nn.Module, optimizer: Any, steps: int = 2) -> None:
    """Some steps that nobody counts; the last gradients stay."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(ones(8, 4)).sum().backward()
        optimizer.step()


def count(*arguments: Any, **options: Any) -> Any:
    """count_step, imported when it is called."""
    from measurements import count_step

    return count_step(*arguments, **options)
