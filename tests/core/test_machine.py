"""Anything may happen to lanes in any order: the promises as a machine, in virtual time.

Requests of mixed costs, priorities and patience on up to three windows; lanes with clocks and
limits of their own; replies and departures that are late; asks that are lost, or booked long
after they were given up; cancelling at every moment; holds; crashes; closing; settling.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quotaclient._core.limits import Limit
from quotaclient._core.queue import Refused, Waiter
from tests.core.ledger import Ledger
from tests.core.world import SECOND, Shell, World

MS = SECOND // 1000
LIMITS = [
    (Limit(1, 1),),
    (Limit(5, 2),),
    (Limit(20, 1),),
    (Limit(3, 1), Limit(7, 10, name="slow")),
    (Limit(10, 1), Limit(40, 5, name="tokens")),
    (Limit(6, 60), Limit(4, 1, name="burst"), Limit(30, 10, name="tokens")),
]
LONGEST = 86_400 * SECOND  # in which all is over, whatever was asked for


class Fleet(RuleBasedStateMachine):
    """Up to four lanes of one key. `less`: by how many units the limits of each are smaller."""

    @initialize(
        limits=st.sampled_from(LIMITS),
        seed=st.integers(0, 2**32),
        trip=st.sampled_from([0, 300, 20 * MS, 90 * MS]),
        late=st.sampled_from([0, 10 * MS, 60 * MS]),
        guard=st.sampled_from([None, None, 0, 20 * MS, 400 * MS]),
        losses=st.sampled_from([0, 0, 0.2]),
        less=st.lists(st.sampled_from([0, 0, 1, 2]), min_size=1, max_size=4),
    )
    def begin(
        self,
        limits: tuple[Limit, ...],
        seed: int,
        trip: int,
        late: int,
        guard: int | None,
        losses: float,
        less: list[int],
    ) -> None:
        self.world = World(limits, seed, trip, late, guard=guard, losses=losses, ledger=Ledger())
        self.shells = [self.lane(number, units) for number, units in enumerate(less)]
        counts = [[limit.count for limit in shell.lane.limits] for shell in self.shells]
        self.most = [max(column) for column in zip(*counts, strict=True)]
        self.fewest = [min(column) for column in zip(*counts, strict=True)]
        self.waiters: list[tuple[Shell, Waiter]] = []
        self.settled = self.held = 0

    def lane(self, number: int, less: int) -> Shell:
        """A lane with limits that are smaller by some units, and a clock of its own."""
        limits = tuple(
            Limit(max(1, limit.count - less), limit.period, name=limit.name)
            for limit in self.world.limits
        )
        clock = self.world.random.randint(-9 * SECOND, 9 * SECOND)
        return self.world.lane(f"lane-{number}", limits, clock)

    @property
    def live(self) -> list[Shell]:
        return [shell for shell in self.shells if not (shell.dead or shell.closed)]

    @precondition(lambda self: self.live)
    @rule(
        data=st.data(),
        many=st.sampled_from([1, 2, 4, 10]),
        max_wait=st.sampled_from([None, None, 0, SECOND // 3, 9 * SECOND]),
        priority=st.sampled_from([0, 0, 0, 1]),
    )
    def come(self, data: st.DataObject, many: int, max_wait: int | None, priority: int) -> None:
        """Requests come, all alike."""
        shell = data.draw(st.sampled_from(self.live))
        costs = tuple(data.draw(st.integers(0, min(4, count))) for count in self.fewest)
        for _ in range(many):
            self.waiters.append((shell, shell.request(costs, max_wait, priority)))

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        """One is cancelled, while it waits or on its way out."""
        shell, waiter = data.draw(st.sampled_from(self.waiters[-12:]))
        shell.cancel(waiter)

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def go_when_served(self, data: st.DataObject) -> None:
        """One is cancelled in the moment in which it is handed its permit."""
        shell, waiter = data.draw(st.sampled_from(self.waiters[-12:]))
        if waiter.waiting:
            wake = waiter.wake

            def cancel_first() -> None:
                self.world.at(self.world.now, lambda: shell.cancel(waiter))
                wake()

            waiter.wake = cancel_first

    @rule(span=st.sampled_from([0, 200, 5 * MS, 40 * MS, 300 * MS, SECOND, 3 * SECOND]))
    def wait(self, span: int) -> None:
        """Time goes on."""
        self.world.run(self.world.now + span)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), span=st.sampled_from([50 * MS, SECOND, 2 * SECOND, 6 * SECOND]))
    def hold(self, data: st.DataObject, span: int) -> None:
        """The upstream holds all; one lane hears it first, the store a way later."""
        shell = data.draw(st.sampled_from(self.live))
        until = self.world.now + span
        self.held += 1
        shell.lane.hold(until + shell.clock)
        shell.advance()
        self.world.at(self.world.now + shell.trip(), lambda: self.world.hold(until))

    @precondition(lambda self: len(self.live) > 1)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """A replica dies; what it has booked stays booked."""
        data.draw(st.sampled_from(self.live)).dead = True

    @precondition(lambda self: len(self.live) > 2)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """A client is closed."""
        data.draw(st.sampled_from(self.live)).close()

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """One of the last requests is known to have used less than it was permitted."""
        sent = [
            (place, one)
            for place, one in enumerate(self.world.departures)
            if place >= self.settled and one.shell in self.live
        ]
        if sent:
            place, one = data.draw(st.sampled_from(sent))
            self.settled = place + 1
            one.shell.correct(one, tuple(data.draw(st.integers(0, units)) for units in one.costs))

    @invariant()
    def strict(self) -> None:
        """P1, P2: no window holds more than the largest of the limits that are asked for.

        That each single ask keeps its own limit is checked with every answer.
        """
        if self.world.guard != 0:
            for window, count in enumerate(self.most):
                assert self.world.most_in_any_window(window) <= count

    @invariant()
    def holds_are_kept(self) -> None:
        """P6: a second after the store was told of a hold, nobody sends before its end."""
        for told, until in self.world.holds:
            first = told + SECOND + self.world.late
            assert not [d for d in self.world.departures if first < d.when < until]

    @invariant()
    def nobody_polls(self) -> None:
        """P4: an ask is for a request, an exchange, in place of a lost one or of held permits."""
        world = self.world
        causes = world.requests + world.exchanges + world.lost
        assert world.asks <= causes + 2 * len(self.shells) * self.held

    @invariant()
    def refusals_are_in_time(self) -> None:
        """P4: a refusal says an instant past the deadline, and comes before or soon after it.

        Or soon after it came back: with a permit in hand it has its time to depart.
        """
        soon = 1 + 4 * self.world.trip
        for shell in self.shells:
            for told, waiter in shell.refused:
                if isinstance(waiter.outcome, Refused):
                    assert waiter.deadline is not None
                    assert waiter.outcome.refusal.at >= waiter.deadline
                    since = max(waiter.deadline, shell.entered[waiter])
                    assert self.world.losses or told <= since + soon

    def teardown(self) -> None:
        """Nobody waits for ever, and when all is over nothing is left."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.run(world.now + LONGEST)
        for shell, waiter in self.waiters:
            if not shell.dead:
                assert waiter.gone or waiter.outcome is not None
        for shell in self.shells:
            assert shell.dead or shell.closed or shell.lane.idle, shell.lane
            assert world.losses or shell.dead or shell.closed or self.balanced(shell)

        for record in world.account.windows.values():
            record.forget(world.now)
            assert record.total == 0

    def balanced(self, shell: Shell) -> bool:
        """P3: whether each unit of a lane was sent or given back, and once."""
        assert self.world.ledger is not None
        return not self.world.ledger.unbalanced(shell.lane.name)


Fleet.TestCase.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
test_fleet = Fleet.TestCase
