"""The circuit: one prober, growing back-off."""

from __future__ import annotations

from quotaclient._core.ask import SECOND
from quotaclient._core.health import LONGEST_BACKOFF, Circuit


def test_closed_admits_everybody() -> None:
    """While the store answers, every ask goes to it, and nothing is announced."""
    circuit = Circuit()
    assert circuit.closed
    ticket = circuit.admits(0)
    assert ticket is not None
    assert circuit.admits(0) == ticket
    assert not circuit.succeeded(ticket, 0)
    circuit.gave_up(ticket)
    assert circuit.admits(0) == ticket
    assert circuit.back_at is None


def opened(chance: float = 0) -> Circuit:
    """A circuit whose first ask failed at 0."""
    circuit = Circuit()
    ticket = circuit.admits(0)
    assert ticket is not None
    assert circuit.failed(ticket, 0, chance)
    return circuit


def test_open_admits_one_prober_after_the_backoff() -> None:
    """After a failure nobody asks until the back-off has passed; then one does, alone."""
    circuit = opened()
    assert circuit.admits(SECOND // 2 - 1) is None
    ticket = circuit.admits(SECOND // 2)
    assert ticket is not None
    assert repr(circuit).startswith("<Circuit probing failures=1")
    assert circuit.admits(SECOND) is None
    assert circuit.succeeded(ticket, SECOND)
    assert circuit.back_at == SECOND
    assert circuit.admits(SECOND) is not None


def test_the_backoff_grows_to_two_seconds() -> None:
    """0.25 to 2 s: doubled with every failure, up to half of it taken away by chance."""
    circuit, now, waits = opened(0.999), 0, []
    for chance in (0.0, 0.0, 0.0, 0.5, 0.0):
        start = now
        while (ticket := circuit.admits(now)) is None:
            now += 1000
        waits.append((now - start) / SECOND)
        assert not circuit.failed(ticket, now, chance)
    assert waits == [0.251, 1.0, 2.0, 2.0, 1.5]
    assert repr(circuit).startswith("<Circuit open failures=6")


def test_what_fails_together_fails_once() -> None:
    """Asks that were under way with the first failure neither lengthen the back-off nor end it."""
    circuit = Circuit()
    tickets = [circuit.admits(0) for _ in range(4)]
    assert [circuit.failed(ticket or 0, 0, 0) for ticket in tickets] == [True, False, False, False]
    assert not circuit.succeeded(tickets[0] or 0, 1)
    prober = circuit.admits(SECOND // 2)
    assert prober is not None
    circuit.gave_up(tickets[1] or 0)
    assert circuit.admits(SECOND) is None


def test_an_interrupted_prober_makes_room() -> None:
    """When the prober is killed the next ask probes."""
    circuit = opened()
    ticket = circuit.admits(LONGEST_BACKOFF)
    assert ticket is not None
    circuit.gave_up(ticket)
    assert repr(circuit).startswith("<Circuit open")
    assert circuit.admits(LONGEST_BACKOFF) is not None
    assert repr(Circuit()).startswith("<Circuit closed")
