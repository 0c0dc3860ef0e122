"""In which module code runs, and which module made an autograd node."""

from __future__ import annotations

import weakref
from bisect import bisect_right

import torch
from torch import nn

_next_node = torch._C._autograd._get_sequence_nr


class Modules:
    """The modules that one thread is in, kept by global hooks, and the names of the nodes that it makes.

    A name runs from the class of the outermost module on ("ResNet.layer1.0.conv1"); a second one of the same
    class is "ResNet#2". Autograd numbers its nodes in the order in which a thread makes them: all nodes
    between two changes of module belong to the module in between.
    """

    def __init__(self, names: Names) -> None:
        """In no module."""
        self.names = names
        self.stack: list[tuple[nn.Module, str]] = []
        self.current = ""
        self.firsts: list[int] = [0]  # numbers of nodes, and whose the nodes from there on are
        self.owners: list[str] = [""]
        if not names.first_thread[0]:
            names.first_thread = (self.firsts, self.owners)

    def enter(self, module: nn.Module) -> None:
        """A module starts its forward."""
        name = self.names.of(module, self.stack)
        self.stack.append((module, name))
        self.current = name
        self.note(name, _next_node())

    def leave(self, module: nn.Module) -> None:
        """A module ends its forward, or fails in it."""
        while self.stack:
            if self.stack.pop()[0] is module:
                break
        self.current = self.stack[-1][1] if self.stack else ""
        self.note(self.current, _next_node())

    def note(self, owner: str, first: int) -> None:
        """Nodes from number `first` on belong to the owner."""
        if owner != self.owners[-1]:
            self.firsts.append(first)
            self.owners.append(owner)

    def owner_of(self, number: int) -> str:
        """The module that made the node with this number.

        Threads number their nodes independently: one that this thread cannot have made is the first thread's.
        """
        mine = len(self.firsts) > 1 and self.firsts[1] <= number < _next_node()
        firsts, owners = (self.firsts, self.owners) if mine else self.names.first_thread
        return owners[bisect_right(firsts, number) - 1]


class Names:
    """The names of modules, of all threads."""

    def __init__(self) -> None:
        """No module is known yet."""
        self.known: dict[int, tuple[weakref.ref[nn.Module], list[str]]] = {}
        self.roots: list[str] = []
        self.first_thread: tuple[list[int], list[str]] = ([], [])

    def of(self, module: nn.Module, stack: list[tuple[nn.Module, str]]) -> str:
        """The name of a module; of several the one under the module that called it."""
        names = self._known(module)
        if not names and stack:  # registered since its root was looked at, or not registered there
            self._learn(stack[0][0], self._known(stack[0][0])[0])
            names = self._known(module)
        if not names:
            kind = type(module).__name__
            same = sum(root.partition("#")[0] == kind for root in self.roots)
            self.roots.append(f"{kind}#{same + 1}" if same else kind)
            self._learn(module, self.roots[-1])
            names = self._known(module)
        if len(names) > 1 and stack:
            caller = f"{stack[-1][1]}."
            return next((name for name in names if name.startswith(caller)), names[0])
        return names[0]

    def _known(self, module: nn.Module) -> list[str]:
        reference, names = self.known.get(id(module), (None, []))
        return names if reference is not None and reference() is module else []

    def _learn(self, root: nn.Module, root_name: str) -> None:
        """The names of a root and of all modules in it."""
        for path, module in root.named_modules(remove_duplicate=False):
            name = f"{root_name}.{path}" if path else root_name
            names = self._known(module)
            if name not in names:
                self.known[id(module)] = (weakref.ref(module), [*names, name])
