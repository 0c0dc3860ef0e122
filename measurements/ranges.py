"""Named NVTX ranges, which a profiler shows above what runs in them; nothing where no profiler listens."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

try:
    import nvtx  # type: ignore[import-untyped]
except ImportError:  # no wheel for macOS, where no tool could listen either
    nvtx = None

DOMAIN = "measurements"


def annotated(name: str) -> AbstractContextManager[Any]:
    """A block that is a range of that name."""
    return nullcontext() if nvtx is None else nvtx.annotate(name, domain=DOMAIN)
