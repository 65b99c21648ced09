"""The wheel, built and installed where nothing of the checkout is in reach, sends a request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import quotaclient
from quotaclient.testing import RedisServer, StrictUpstream

CHECKOUT = Path(__file__).parents[2]

# What the README documents. A name that is missing here was added without saying so.
PUBLIC = [
    "AsyncQuota",
    "AsyncQuotaClient",
    "AsyncQuotaTransport",
    "Decision",
    "Feedback",
    "InvalidLimit",
    "Limit",
    "Profile",
    "Quota",
    "QuotaClient",
    "QuotaError",
    "QuotaExceeded",
    "QuotaTransport",
    "Sign",
    "StoreUnavailable",
    "Usage",
    "day",
    "hour",
    "minute",
    "read_feedback",
    "second",
]

# Run in the environment that has the wheel; prints what it saw.
REQUEST = """
import json, sys
import quotaclient
from quotaclient import QuotaClient

upstream, redis = sys.argv[1:]
with QuotaClient(upstream, limit="5/min", redis=redis) as client:
    response = client.get("/")
    remaining = client.quota.peek().remaining
print(json.dumps({
    "status": response.status_code,
    "source": response.extensions["quota"].source,
    "remaining": remaining,
    "file": quotaclient.__file__,
    "path": sys.path,
}))
"""

LIGHT = """
import sys
import quotaclient
assert str(quotaclient.Limit(100, quotaclient.minute)) == "100/min"
heavy = {"httpx", "redis", "tenacity", "anyio", "asyncio"}
print(sorted(heavy & set(sys.modules)))
"""


def _run(*command: str | Path, cwd: Path) -> str:
    """What a command printed, once it has ended well; it knows no path of this process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _metadata(wheel: Path) -> metadata.Distribution:
    (about,) = (p for p in zipfile.Path(wheel).iterdir() if p.name.endswith(".dist-info"))
    return metadata.PathDistribution(about)


def _dependencies(distribution: metadata.Distribution) -> list[metadata.Distribution]:
    """What installing a distribution without its extras brings, as it is installed here."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(distribution.requires or ())
    while waiting:
        requirement = Requirement(waiting.pop())
        name, marker = requirement.name, requirement.marker
        if name not in found and (marker is None or marker.evaluate({"extra": ""})):
            found[name] = metadata.distribution(name)
            waiting += found[name].requires or ()
    return list(found.values())


def _link(distribution: metadata.Distribution, site: Path) -> None:
    """Make an installed distribution importable in `site`, and nothing that lies beside it."""
    names = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    assert names, f"{distribution.name} does not tell its files"
    for name in names:
        (site / name).symlink_to(Path(str(distribution.locate_file(name))).resolve())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    _run(sys.executable, *build, CHECKOUT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel, what the wheel requires, and nothing else.

    Needs no network: the dependencies are linked, one by one, from the running environment. So
    neither an editable install of the checkout nor a library that the wheel forgot to require is
    in reach. Then pip finds every requirement met and installs the wheel as it always does.
    """
    folder = tmp_path_factory.mktemp("installed").resolve() / "venv"
    venv.create(folder, symlinks=True)
    executable = folder / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(_run(executable, "-I", "-c", where, cwd=folder).strip())
    for distribution in _dependencies(_metadata(wheel)):
        _link(distribution, site)
    pip = ("-m", "pip", "--python", executable, "--disable-pip-version-check")
    _run(sys.executable, *pip, "install", "--no-index", "--quiet", wheel, cwd=folder)
    return executable


def test_wheel_has_the_scripts_once(wheel: Path) -> None:
    """Each script of lua/ is in the wheel, at quotaclient/lua/ and nowhere else; so is py.typed."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        scripts = {path.name: path.read_bytes() for path in (CHECKOUT / "lua").glob("*.lua")}
        assert sorted(name for name in names if name.endswith(".lua")) == sorted(
            f"quotaclient/lua/{name}" for name in scripts
        )
        for name, text in scripts.items():
            assert archive.read(f"quotaclient/lua/{name}") == text
    assert names.count("quotaclient/py.typed") == 1


def test_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    """Every module is in the wheel; no test, no example, no folder at its top but the package."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = {p.relative_to(CHECKOUT).as_posix() for p in (CHECKOUT / "quotaclient").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    about = _metadata(wheel)
    assert {name.partition("/")[0] for name in names} == {
        "quotaclient",
        f"quotaclient-{about.version}.dist-info",
    }


def test_wheel_requires_four_libraries(wheel: Path) -> None:
    """httpx, redis, tenacity and anyio; zones for Windows; everything else is an extra."""
    required = [Requirement(line) for line in _metadata(wheel).requires or ()]
    always = {r.name: str(r.marker) for r in required if "extra" not in str(r.marker or "")}
    assert always.pop("tzdata") == 'sys_platform == "win32"'
    assert set(always) == {"httpx", "redis", "tenacity", "anyio"}


def test_wheel_sends_a_request(python: Path, shared_redis: RedisServer, tmp_path: Path) -> None:
    """With the checkout out of reach, a request goes out by the scripts that the wheel brought."""
    with StrictUpstream(5, 60.0) as upstream:
        request = (python, "-I", "-c", REQUEST, upstream.url, shared_redis.url)
        seen = json.loads(_run(*request, cwd=tmp_path))
        assert upstream.report().admitted == 1
    assert (seen["status"], seen["source"], seen["remaining"]) == (200, "store", 4)
    environment = python.parents[1]
    assert Path(seen["file"]).is_relative_to(environment)
    reach = [Path(entry).resolve() for entry in seen["path"]]
    assert not any(entry.is_relative_to(CHECKOUT) for entry in reach)
    assert not any((entry / "lua").exists() for entry in reach)


def test_wheel_brings_the_command(wheel: Path, python: Path, tmp_path: Path) -> None:
    """`quotaclient` runs without any extra, and tells its version."""
    command = python.parent / "quotaclient"
    version = f"quotaclient {_metadata(wheel).version}\n"
    assert _run(command, "--version", cwd=tmp_path) == version
    assert "--replicas" in _run(command, "demo", "--help", cwd=tmp_path)


def test_limits_cost_no_import(python: Path, tmp_path: Path) -> None:
    """Whoever imports `quotaclient` for its limits imports neither httpx nor redis."""
    assert _run(python, "-I", "-c", LIGHT, cwd=tmp_path) == "[]\n"


def test_public_names_are_the_documented_ones() -> None:
    """`__all__` is exactly that; every name resolves, `dir()` lists them, and no other does."""
    assert quotaclient.__all__ == PUBLIC
    assert dir(quotaclient) == PUBLIC
    for name in PUBLIC:
        assert getattr(quotaclient, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Qouta'"):
        getattr(quotaclient, "Qouta")  # noqa: B009 - a type checker would object to the short form
