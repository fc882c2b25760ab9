"""The policy that is served, and its replacement by a newer file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forestall.errors import ForestallError
from forestall.method import Policy
from forestall.serve.summary import Summary, summarised

logger = logging.getLogger("forestall.serve")

Load = Callable[[], Policy]
Mark = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Held:
    """One policy in service.

    Args:
        policy: The policy.
        fingerprint: Changes whenever the policy does.
        loaded: When it was loaded.
        summary: What is told of it; without any record.
    """

    policy: Policy
    fingerprint: str
    loaded: datetime
    summary: Summary

    @classmethod
    def of(cls, policy: Policy, about: dict[str, Any] | None = None) -> Held:
        """Hold a policy; ``about`` is what its file says of it."""
        summary = summarised(policy)
        told = [about or type(policy).__name__, policy.problem.to_dict(), summary.told]
        text = json.dumps(told, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(policy, digest, datetime.now(UTC), summary)


@dataclass(frozen=True)
class PolicyFile:
    """A saved policy; its arrays are mapped, so that processes share them."""

    path: Path

    def load(self) -> Held:
        """Read the file; an error where it is no policy."""
        from forestall.store import about, load

        return Held.of(load(self.path, mmap=True), about(self.path))

    def mark(self) -> Mark | None:
        """Tell one version of the file from the next; ``None`` without a file."""
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size


@dataclass(frozen=True, eq=False)
class Given:
    """A policy from a function, for tests and for programs with their own storage."""

    make: Load

    def load(self) -> Held:
        """Call the function."""
        return Held.of(self.make())

    def mark(self) -> Mark | None:
        """Never changes."""
        return None


Source = PolicyFile | Given


def source_of(policy: Policy | str | Path | Load) -> Source:
    """Take a policy, the path of a saved one, or a function that makes one."""
    if isinstance(policy, Policy):
        return Given(lambda: policy)
    return PolicyFile(Path(policy)) if isinstance(policy, str | Path) else Given(policy)


@dataclass(eq=False)
class Shelf:
    """Holds the policy in service; a request keeps the one it began with."""

    source: Source
    changed: Callable[[Held], None]
    every: float = 1.0
    _mark: Mark | None = field(default=None, init=False)
    _held: Held | None = field(default=None, init=False)

    @property
    def current(self) -> Held:
        """The newest policy that could be loaded."""
        assert self._held is not None
        return self._held

    def open(self) -> None:
        """Load the first policy; an error where there is none."""
        mark = self.source.mark()
        self._put(self.source.load(), mark)

    async def watch(self) -> None:
        """Look for a newer file again and again, until cancelled."""
        while True:
            await asyncio.sleep(self.every)
            mark = self.source.mark()
            if mark is not None and mark != self._mark:
                await self.renew(mark)

    async def renew(self, mark: Mark | None) -> None:
        """Load the newer file in a thread; a broken one changes nothing."""
        self._mark = mark
        try:
            held = await asyncio.to_thread(self.source.load)
        except Exception as error:
            # Its text may quote what the file holds.
            known = isinstance(error, ForestallError)
            logger.error(
                "policy kept: the newer file cannot be loaded",
                extra={"told": {"cause": type(error).__name__, "expected": known}},
            )
        else:
            self._put(held, mark)
            logger.info("policy loaded", extra={"told": _told(held)})

    def _put(self, held: Held, mark: Mark | None) -> None:
        self._held, self._mark = held, mark
        self.changed(held)


def _told(held: Held) -> dict[str, str]:
    return {"fingerprint": held.fingerprint}
