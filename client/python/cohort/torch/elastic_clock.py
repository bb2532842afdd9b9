"""The times in the state of PyTorch's dynamic rendezvous, on hosts whose clocks differ.

An agent writes the time of its clock as its heartbeat, and the end of the last call. PyTorch compares
them with the clock of the agent that reads them, so a difference of some seconds makes agents look
dead. The holder here only looks whether such a time has changed since this agent read it last, and
gives PyTorch the time of that change by the clock of this host.
"""

import time
from datetime import datetime, timedelta
from typing import Dict, Hashable, Tuple

from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler, _BackendRendezvousStateHolder)

_DEADLINE = 'deadline'


class StateHolder(_BackendRendezvousStateHolder):
    """PyTorch's, with times by this host's clock in `state` and the writers' times in the backend.

    A heartbeat is new when this agent reads it first. An agent that died before is removed as late
    as one that dies then. Time in which this agent read nothing does not count as the silence of
    others, because they could not write while the coordinator was away.
    """

    def __init__(self, backend, settings):
        super().__init__(backend, settings)
        self._elapsed = 0.0  # in which this agent has read the state
        self._last_read = time.monotonic()
        # By node, and for the deadline: the writer's time, and `_elapsed` when it was read first.
        self._first_read: Dict[Hashable, Tuple[datetime, float]] = {}
        # The same keys: the time in `state`, and the writer's.
        self._written: Dict[Hashable, Tuple[datetime, datetime]] = {}

    def sync(self):
        """Writes changes, or reads the state, as the base class."""
        if not self._dirty:
            return super().sync()
        state = self._state
        local = dict(state.last_heartbeats), state.deadline
        for node, beat in state.last_heartbeats.items():
            state.last_heartbeats[node] = self._as_written(node, beat)
        if state.deadline is not None:
            state.deadline = self._as_written(_DEADLINE, state.deadline)
        try:
            return super().sync()
        except BaseException:
            state.last_heartbeats, state.deadline = local
            raise

    def _as_written(self, key: Hashable, local: datetime) -> datetime:
        shown, written = self._written.get(key, (None, local))
        return written if shown == local else local  # this agent has changed it

    def _sanitize(self) -> None:
        now = time.monotonic()
        longest = self._settings.keep_alive_interval.total_seconds()
        self._elapsed += min(now - self._last_read, longest)
        self._last_read = now
        state = self._state
        times: Dict[Hashable, datetime] = dict(state.last_heartbeats)
        if state.deadline is not None:
            times[_DEADLINE] = state.deadline
        clock = dynamic_rendezvous.datetime.now(tz=dynamic_rendezvous.timezone.utc)
        first_read, self._written = self._first_read, {}
        self._first_read = {}
        for key, written in times.items():
            before = first_read.get(key)
            since = before[1] if before is not None and before[0] == written else self._elapsed
            self._first_read[key] = written, since
            local = clock - timedelta(seconds=self._elapsed - since)
            if key == _DEADLINE:
                local += self._settings.timeout.last_call
                state.deadline = local
            else:
                state.last_heartbeats[key] = local
            self._written[key] = local, written
        super()._sanitize()


def use_own_clock(handler: DynamicRendezvousHandler) -> DynamicRendezvousHandler:
    """Gives the handler a StateHolder in place of its own. Returns the handler."""
    # PyTorch has no other way to pass one to `create_handler`.
    # pylint: disable=protected-access
    holder = StateHolder(handler._state_holder._backend, handler.settings)
    handler._state_holder = handler._op_executor._state_holder = holder
    return handler
