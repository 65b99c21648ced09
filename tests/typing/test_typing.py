"""The public API has the types that a user sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


def test_public_api_has_its_types() -> None:
    """mypy --strict agrees with every line of api.py, and needs every ignore in it."""
    pytest.importorskip("mypy", reason="mypy comes with the extra `check`", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "tests/typing/api.py"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
