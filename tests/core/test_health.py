"""The circuit: one prober, growing back-off."""

from __future__ import annotations

from quotaclient._core.ask import SECOND
from quotaclient._core.health import LONGEST_BACKOFF, Circuit


def test_closed_admits_everybody() -> None:
    """While the store answers, every ask goes to it, and nothing is announced."""
    circuit = Circuit()
    assert circuit.closed
    assert circuit.admits(0)
    assert circuit.admits(0)
    assert not circuit.succeeded(0)
    assert circuit.back_at is None


def test_open_admits_one_prober_after_the_backoff() -> None:
    """After a failure nobody asks until the back-off has passed; then one does, alone."""
    circuit = Circuit()
    assert circuit.failed(0, chance=0)
    assert not circuit.admits(SECOND // 2 - 1)
    assert circuit.admits(SECOND // 2)
    assert repr(circuit).startswith("<Circuit probing failures=1")
    assert not circuit.admits(SECOND)
    assert circuit.succeeded(SECOND)
    assert circuit.back_at == SECOND
    assert circuit.admits(SECOND)


def test_the_backoff_grows_to_two_seconds() -> None:
    """0.25 to 2 s: doubled with every failure, up to half of it taken away by chance."""
    circuit, now, waits = Circuit(), 0, []
    for chance in (0.999, 0.0, 0.0, 0.0, 0.5):
        assert circuit.failed(now, chance) == (now == 0)
        start = now
        while not circuit.admits(now):
            now += 1000
        waits.append((now - start) / SECOND)
    assert waits == [0.251, 1.0, 2.0, 2.0, 1.5]
    assert repr(circuit).startswith("<Circuit probing failures=5")


def test_an_interrupted_prober_makes_room() -> None:
    """When the prober is killed the next ask probes."""
    circuit = Circuit()
    circuit.failed(0, chance=0)
    assert circuit.admits(LONGEST_BACKOFF)
    circuit.gave_up()
    assert repr(circuit).startswith("<Circuit open")
    assert circuit.admits(LONGEST_BACKOFF)
    assert repr(Circuit()).startswith("<Circuit closed")
