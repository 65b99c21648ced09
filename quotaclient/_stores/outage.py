"""Redis and, while it is away, this replica's share: they carry what a `Fallback` decides."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import cast

from quotaclient._core.ask import Answer, Ask
from quotaclient._core.limits import Limit
from quotaclient._stores.redis import AsyncRedisStore, RedisStore, StoreDown, ThreadedRedisStore
from quotaclient._stores.replica import Fallback, Hold, Question, Reset, Talk


class OutageStore:
    """Redis and the share, for threads."""

    def __init__(self, store: RedisStore, fallback: Fallback) -> None:
        self._store = store
        self._fallback = fallback

    def reserve(self, ask: Ask) -> Answer:
        talk = self._fallback.talk(ask)
        try:
            question = next(talk)
            while True:
                try:
                    answer = self._put(question)
                except BaseException as error:
                    question = talk.throw(error)
                else:
                    question = talk.send(answer)
        except StopIteration as end:
            return cast(Answer, end.value)

    def _put(self, question: Question) -> Answer | None:
        match question:
            case Ask():
                return self._store.reserve(question)
            case Hold(key, wait):
                self._store.hold(key, wait)
            case Reset(key, limits):
                self._store.reset(key, limits)
        return None

    def hold(self, key: str, wait: int) -> None:
        ticket = self._fallback.held(key, wait)
        if ticket is not None:
            try:
                self._store.hold(key, wait)
            except StoreDown as error:
                self._fallback.lost(ticket, error)

    def reset(self, key: str, limits: tuple[Limit, ...]) -> None:
        ticket = self._fallback.forgotten(key, limits)
        if ticket is not None:
            try:
                self._store.reset(key, limits)
            except StoreDown as error:
                self._fallback.not_forgotten(ticket, key, limits, error)

    def close(self) -> None:
        self._store.close()


class AsyncOutageStore:
    """Redis and the share, for one event loop."""

    def __init__(self, store: AsyncRedisStore | ThreadedRedisStore, fallback: Fallback) -> None:
        self._store = store
        self._fallback = fallback

    def reserve(self, ask: Ask) -> Answer | Awaitable[Answer]:
        talk = self._fallback.talk(ask)
        try:
            question = next(talk)
        except StopIteration as end:  # decided alone: at once
            return cast(Answer, end.value)
        return self._carry(talk, question)

    async def _carry(self, talk: Talk, question: Question) -> Answer:
        try:
            while True:
                try:
                    answer = await self._put(question)
                except BaseException as error:
                    question = talk.throw(error)
                else:
                    question = talk.send(answer)
        except StopIteration as end:
            return cast(Answer, end.value)

    async def _put(self, question: Question) -> Answer | None:
        match question:
            case Ask():
                return await self._store.reserve(question)
            case Hold(key, wait):
                await self._store.hold(key, wait)
            case Reset(key, limits):
                await self._store.reset(key, limits)
        return None

    async def hold(self, key: str, wait: int) -> None:
        ticket = self._fallback.held(key, wait)
        if ticket is not None:
            try:
                await self._store.hold(key, wait)
            except StoreDown as error:
                self._fallback.lost(ticket, error)

    async def reset(self, key: str, limits: tuple[Limit, ...]) -> None:
        ticket = self._fallback.forgotten(key, limits)
        if ticket is not None:
            try:
                await self._store.reset(key, limits)
            except StoreDown as error:
                self._fallback.not_forgotten(ticket, key, limits, error)

    async def close(self) -> None:
        done = self._store.close()
        if done is not None:
            await done
