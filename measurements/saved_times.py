"""What pytest-benchmark saves beside its times, and shows when two runs are compared.

Its files lie in a folder that names the device; their machine_info holds what a time depends on, and nothing
that changes by itself, so that two runs differ in it where their times may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from measurements import METHOD
from measurements.devices import DeviceError, driver_facts
from measurements.runs import device

MATTERS = ("torch", "driver", "gpu", "cpu", "cores", "dtype", "method")
"""Facts of machine_info in whose absence or change a comparison misleads."""


def machine_info(dtypes: Sequence[str]) -> dict[str, object]:
    """What a time on this machine depends on."""
    here = device()
    found: dict[str, object] = {name: here[name] for name in ("machine", "cpu", "cores")}
    found |= {"torch": metadata.version("torch"), "dtype": list(dtypes) or ["fp32"], "method": METHOD}
    try:
        found |= driver_facts()
    except DeviceError:
        found |= {"gpu": None, "driver": None}
    return found


def differing(here: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """What two runs differ in that matters, "torch 2.14.1 here, 2.7.1 there"."""
    return [
        f"{name} {_said(here.get(name))} here, {_said(saved.get(name))} there"
        for name in MATTERS
        if here.get(name) != saved.get(name)
    ]


def _said(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "none")


def folder(info: Mapping[str, Any], on_gpu: bool) -> str:
    """The device's name as a folder's."""
    name = info["gpu"] if on_gpu and info["gpu"] else info["cpu"]
    return re.sub(r"[^A-Za-z0-9]+", "_", str(name)).strip("_") or "unknown"


def with_utilization(row: Mapping[str, Any]) -> str:
    """The name of a row of pytest-benchmark's table, with the utilization that its time means."""
    facts = row.get("extra_info") or {}
    flop, peak = facts.get("flop"), facts.get("peak_flop_per_s")
    seconds = row.get(facts.get("statistic", "median"))
    if not (flop and peak and seconds):
        return str(row["name"])
    return f"{row['name']} {flop / facts.get('parts', 1) / seconds / peak:.1%} of {facts['peak_kind']}"
