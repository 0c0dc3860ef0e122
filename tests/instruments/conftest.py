"""Small suites, run by pytest in a process of its own, with the options, axes and fixtures of this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def own_environment() -> dict[str, str]:
    """The environment of a pytest inside pytest: nothing of the outer one, and no slow plugins."""
    own = {"PYTEST_ADDOPTS": "", "PYTEST_XDIST_WORKER": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return {**os.environ, "PYTHONPATH": str(ROOT), **own}


@pytest.fixture
def suite(tmp_path: Path, own_environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function from the text of a test file, and options, to the ended process; runs are under tmp_path."""

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "test_small.py"
        path.write_text(text, encoding="utf-8")
        plugins = ("-p", "conftest", "-p", "no:cacheprovider")
        places = ("-c", str(ROOT / "pytest.ini"), "--rootdir", str(tmp_path))
        command = [sys.executable, "-m", "pytest", *plugins, *places, *options, str(path)]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=own_environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
