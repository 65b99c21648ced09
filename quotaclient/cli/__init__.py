"""The command `quotaclient`. What a subcommand needs is imported when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quotaclient._core.limits import Limit

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended

_MOST_REPLICAS = 64
_SECONDS = (3, 600)
_PICTURES = (".png", ".svg", ".pdf")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv`, by default that of the process, and return its exit code.

    130 after Ctrl-C, 143 after SIGTERM. As argparse does, raises SystemExit(2) for arguments that
    cannot be and SystemExit(0) after --help and --version.
    """
    try:
        parser = _parser()
        arguments = parser.parse_args(argv)
        if arguments.command is None:
            parser.print_help()
            return 0
        return _demo(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `quotaclient demo | head`: nobody reads on
        # Python flushes stdout once more at exit, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="quotaclient", description="One API quota, shared by a fleet of processes."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    demo = commands.add_parser(
        "demo",
        help="watch several replicas use one quota to the last request",
        description=(
            "Start a real redis-server, a strict upstream that answers 429 beyond its limit, and"
            " replica processes that have more work than quota. After a third of the time Redis is"
            " killed, after two thirds it is started again, empty."
        ),
    )
    demo.add_argument(
        "--replicas", type=_replicas, default=4, metavar="N", help="1 to 64 processes (default: 4)"
    )
    demo.add_argument(
        "--limit",
        type=_limit,
        default="100/2s",
        help='the quota they share, such as "50/s" or "1000/min" (default: "100/2s")',
    )
    demo.add_argument(
        "--seconds", type=_seconds, default=30.0, help="how long, 3 to 600 (default: 30)"
    )
    demo.add_argument("--no-outage", action="store_true", help="leave Redis alone")
    demo.add_argument(
        "--plot",
        type=_picture,
        metavar="FILE",
        help="draw the departures against the limit (.png, .svg or .pdf; needs matplotlib)",
    )
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from quotaclient.cli.demo import Plan, run  # brings httpx and redis

    return run(
        Plan(
            limit=arguments.limit,
            replicas=arguments.replicas,
            seconds=arguments.seconds,
            outage=not arguments.no_outage,
            plot=arguments.plot,
        )
    )


def _version() -> str:
    try:
        return metadata.version("quotaclient")
    except metadata.PackageNotFoundError:
        return "(from a checkout, not installed)"


def _replicas(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST_REPLICAS:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a whole number from 1 to {_MOST_REPLICAS}, for example --replicas 4"
    )


def _seconds(text: str) -> float:
    shortest, longest = _SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if shortest <= seconds <= longest:  # false for nan
        return seconds
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a number from {shortest} to {longest}, for example --seconds 30"
    )


def _limit(text: str) -> Limit:
    from quotaclient._core.limits import InvalidLimit, Limit

    try:
        limits = Limit.parse(text)
    except InvalidLimit as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if len(limits) != 1:
        raise argparse.ArgumentTypeError(
            f'{text!r} is more than one limit: the demo shows one, for example --limit "100/2s"'
        )
    return limits[0]


def _picture(text: str) -> Path:
    """The file for the picture; whatever would fail after the run is found before it."""
    path = Path(text)
    if path.suffix.lower() not in _PICTURES:
        raise argparse.ArgumentTypeError(
            f"{text!r} does not end in {', '.join(_PICTURES)}, for example --plot demo.png"
        )
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is in a folder that does not exist")
    if find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError(
            "drawing needs matplotlib: pip install 'quotaclient[demo]', or leave --plot out"
        )
    return path
