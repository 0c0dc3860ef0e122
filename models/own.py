"""A model of your own: `pkg.module:factory`, a class or function that returns a torch.nn.Module.

The module may be installed or lie in the current directory. A factory with a parameter `classes` or
`num_classes` is called with it, every other one without arguments.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import nn

from models import IMAGE, ArchitectureError, on_meta


def build(name: str, classes: int = 10) -> nn.Module:
    """The model that the factory returns."""
    with _current_directory_importable():
        factory = _factory(name)
        if isinstance(factory, nn.Module):
            raise ArchitectureError(
                f"{name!r} is a model already built; give the class or function that builds it"
            )
        if not callable(factory):
            kind = type(factory).__name__
            raise ArchitectureError(
                f"{name!r} is of type {kind}, which cannot be called; give a class or a function"
            )
        try:
            model = factory(**_arguments(factory, classes))
        except Exception as error:
            raise ArchitectureError(
                f"{name!r} failed to build its model ({_first_line(error)}); "
                "give a factory that needs no argument besides classes or num_classes, or mend it"
            ) from error
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ArchitectureError(
            f"{name!r} returned an object of type {kind}; make it return a torch.nn.Module"
        )
    return model


def input_shape(name: str) -> tuple[int, ...]:
    """Sizes of one input where the user gives none."""
    return IMAGE


def _factory(name: str) -> object:
    """What the name names."""
    path, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*path.split("."), *attribute.split(".")]):
        raise ArchitectureError(
            f"{name!r} is not of the form pkg.module:factory, such as nets.small:SmallNet"
        )
    found: object = _module(path, name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found))
            hint = f"near: {', '.join(near)}" if near else "name a class or a function that it defines"
            where = f" (it is the package in {found.__path__[0]})" if hasattr(found, "__path__") else ""
            raise ArchitectureError(f"{name!r}: {path!r}{where} has no {part!r}; {hint}")
        found = getattr(found, part)
    return found


def _module(path: str, name: str) -> ModuleType:
    """The imported module."""
    importlib.invalidate_caches()
    try:
        return on_meta.imported(path)
    except ModuleNotFoundError as error:
        if error.name and f"{path}.".startswith(f"{error.name}."):
            raise ArchitectureError(
                f"{name!r}: no module {error.name!r}; install it or start from the directory that holds it, "
                "and write it with dots and without .py"
            ) from error
        raise _import_failed(path, name, error) from error
    except Exception as error:
        raise _import_failed(path, name, error) from error


def _import_failed(path: str, name: str, error: Exception) -> ArchitectureError:
    """The error of a module that is there and does not import."""
    return ArchitectureError(
        f"{name!r}: importing {path!r} failed ({_first_line(error)}); mend it or install what it needs"
    )


def _arguments(factory: Callable[..., object], classes: int) -> dict[str, int]:
    """The keyword argument by which the factory takes the number of classes, if it takes it."""
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # some built-in types have no signature
        return {}
    for word in ("classes", "num_classes"):
        if word in parameters and parameters[word].kind in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        ):
            return {word: classes}
    return {}


def _first_line(error: Exception) -> str:
    """The error's type and the first line of its message."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    """The current directory at the head of the import path, unless it is on it already."""
    here = str(Path.cwd())
    if here in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
