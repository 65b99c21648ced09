"""The house keeps its rules: who imports whom, what the core may touch, what a script tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path

import pytest

from quotaclient._stores import scripts

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "quotaclient"
LUA = sorted((CHECKOUT / "lua").iterdir())

# From what decides to what acts. A module imports only what stands before it.
ORDER = [
    "quotaclient._core",
    "quotaclient._core.calendar",
    "quotaclient._core.checks",
    "quotaclient._core.limits",
    "quotaclient._core.ask",
    "quotaclient._core.window",
    "quotaclient._core.fixed",
    "quotaclient._core.bucket",
    "quotaclient._core.account",
    "quotaclient._core.share",
    "quotaclient._core.health",
    "quotaclient._core.queue",
    "quotaclient._core.hand",
    "quotaclient._core.patience",
    "quotaclient._core.guard",
    "quotaclient._core.prefetch",
    "quotaclient._core.asks",
    "quotaclient._core.lane",
    "quotaclient._core.scalars",
    "quotaclient._core.structured",
    "quotaclient._core.fields",
    "quotaclient._core.profiles",
    "quotaclient._core.feedback",
    "quotaclient._core.attempt",
    "quotaclient._core.options",
    "quotaclient._core.routes",
    "quotaclient._stores",
    "quotaclient._stores.memory",
    "quotaclient._stores.scripts",
    "quotaclient._stores.redis",
    "quotaclient._stores.replica",
    "quotaclient._stores.outage",
    "quotaclient._settings",
    "quotaclient._loops",
    "quotaclient._decision",
    "quotaclient._timekeeper",
    "quotaclient._sync_lane",
    "quotaclient._async_lane",
    "quotaclient._lanes",
    "quotaclient._quota",
    "quotaclient._retry",
    "quotaclient._feedback",
    "quotaclient._bodies",
    "quotaclient._departure",
    "quotaclient._transport",
    "quotaclient._clients",
    "quotaclient.errors",
    "quotaclient._client",
    "quotaclient",
    "quotaclient.httpx2",
]
# Packages beside the library: they may use all of it, and it knows nothing of them.
BESIDE = {"quotaclient.testing", "quotaclient.cli"}

# What computes and nothing else. `datetime` reads dates; a test below sees to it that it tells no
# time. `zoneinfo` knows what clocks show elsewhere, if told the time. Anything added here is
# a decision: no I/O, no clock, no chance, no waiting.
PURE = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "contextlib",
    "dataclasses",
    "datetime",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "reprlib",
    "typing",
    "zoneinfo",
}
CLOCKS = {"now", "utcnow", "today"}
DOORS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}

# Who may know a library that is not Python's own.
KNOWS = {
    "redis": {"quotaclient._stores.redis"},
    "httpx": {"quotaclient.errors", "quotaclient._client"},
    "httpx2": {"quotaclient.httpx2"},
    "tenacity": {"quotaclient._retry", "quotaclient._transport", "quotaclient._clients"},
    "anyio": {"quotaclient._async_lane", "quotaclient._stores.redis", "quotaclient._transport"},
}


def _module_of(path: Path) -> str:
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _beside(module: str) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in BESIDE)


CORE = [module for module in FILES if module.startswith("quotaclient._core.")]
LIBRARY = [module for module in FILES if not _beside(module)]


def _tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text("utf-8"))


def _imports(module: str) -> Iterator[str]:
    """Every module that is named in an import, wherever it stands, also for type checkers only."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import: name the module in full"
            name = node.module or ""
            for alias in node.names:
                submodule = f"{name}.{alias.name}"
                yield submodule if submodule in FILES else name


def test_every_module_has_its_place() -> None:
    """A new module is put into ORDER, which says what it may import."""
    assert set(LIBRARY) == set(ORDER)


@pytest.mark.parametrize("module", ORDER)
def test_imports_run_one_way(module: str) -> None:
    """A module imports only modules of this package that stand before it."""
    own = {name for name in _imports(module) if name.partition(".")[0] == "quotaclient"}
    allowed = ORDER[: ORDER.index(module)]
    assert {name for name in own if name not in allowed} == set()


@pytest.mark.parametrize("module", CORE)
def test_core_only_computes(module: str) -> None:
    """The core imports what computes, and modules of the core; it opens no door of Python's own."""
    imported = set(_imports(module))
    assert imported - PURE - set(CORE) == set()
    used = {node.id for node in ast.walk(_tree(module)) if isinstance(node, ast.Name)}
    assert used & DOORS == set()


@pytest.mark.parametrize("module", CORE)
def test_core_reads_no_clock(module: str) -> None:
    """Nobody in the core asks a date for the present: time is an argument."""
    called = {
        node.func.attr
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert called & CLOCKS == set()


@pytest.mark.parametrize("library", KNOWS)
def test_libraries_are_known_where_they_belong(library: str) -> None:
    """A library of others is imported in the few places that are there to know it."""
    knowing = {
        module
        for module in LIBRARY
        if any(name.partition(".")[0] == library for name in _imports(module))
    }
    assert knowing == KNOWS[library]


@pytest.mark.parametrize("path", LUA, ids=lambda path: path.name)
def test_script_says_what_it_takes_and_gives(path: Path) -> None:
    """Each script begins with its purpose, then KEYS, ARGV, Returns and Units, in this order."""
    lines = path.read_text("utf-8").splitlines()
    header = list(takewhile(lambda line: line.startswith("--"), lines))
    assert re.fullmatch(r"-- [A-Z].*", header[0])
    places = []
    for title in ("KEYS", "ARGV", "Returns", "Units"):
        found = [i for i, line in enumerate(header) if re.match(rf"-- {title} +\S", line)]
        assert len(found) == 1, f"{path.name} has {len(found)} lines of {title} in its header"
        places += found
    assert all(before < after for before, after in pairwise([0, *places]))


def test_scripts_are_those_that_are_loaded() -> None:
    """Every script in lua/ is loaded, alone or as a part, and there is nothing else in it."""
    loaded = {
        script.text for script in vars(scripts).values() if isinstance(script, scripts.Script)
    }
    assert {path.suffix for path in LUA} == {".lua"}
    texts = {path.stem: path.read_text("utf-8") for path in LUA}
    whole = {"hold", "reset"}
    assert {texts[name] for name in whole} < loaded
    parts = texts.keys() - whole - {"reserve"}
    assert all(any(texts[name] in script for script in loaded) for name in parts)
    assert not any("-- Part:" in script for script in loaded)
