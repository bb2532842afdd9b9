"""Watches: the changes of keys, and the events of a group, as iterators."""

import collections
from typing import Any, Callable, Deque, Iterator, NamedTuple, Optional, TypeVar

from cohort import _core
from cohort import _lifetime
from cohort._environment import coordinator_address
from cohort.errors import Error
from cohort.group_info import GroupInfo, read_group_info
from cohort.timeouts import Timeout, seconds


class KeyEvent(NamedTuple):
    """A change of a key."""
    kind: str  # "put", "deleted" or "expired"
    key: str
    value: bytes  # of a put; otherwise empty
    revision: int


class GroupEvent(NamedTuple):
    """An event of a group."""
    kind: str  # see `watch_group`
    member: str  # its subject; empty: the event concerns no member
    rank: Optional[int]
    generation: int
    cause: Optional[str]  # the kind of the cause, such as "connection_lost"
    detail: str  # of the cause
    revision: int


E = TypeVar('E', KeyEvent, GroupEvent)


class Watch(Iterator[E]):
    """A watch: an iterator of changes, each once and in order.

    It ends with StopIteration after its timeout, after `close`, and with the group that it watches.
    It closes its stream at the end of a `with` statement, and when it is no longer used, as after
    `break`. A handler of a signal that raises ends a step that waits, as it ends any
    call.

    If the connection breaks, the watch goes on after the last change. At most one message of the
    coordinator waits here for the program, so a slow program needs no more memory. One thread at a
    time may take a step.

    Errors of a step. Afterwards the next step tries again, after the last change:
      OutOfRange: the coordinator no longer keeps the next changes, because the program was too slow,
        or because the coordinator has restarted. Read the present state, and watch from its revision.
      Unavailable: the coordinator was away for the reconnect timeout.
      NotFound: the group does not exist any more; the text says how it was closed.
    """

    def __init__(self, core: Any, event: Callable[..., E], subject: str):
        self._core = core
        self._event = event
        self._subject = subject
        self._events: Deque[tuple] = collections.deque()
        self._revision = 0
        self._ended = False
        self._closed = False

    def open(self) -> 'Watch[E]':
        """Opens the stream if it is closed, and returns the watch. It has all later changes."""
        self._core.open()
        return self

    @property
    def revision(self) -> int:
        """The revision of the last change that the iterator returned, or where it began. Another
        watch may go on from here."""
        if not self._closed:
            first = self._events[0] if self._events else None
            self._revision = first[-1] - 1 if first else self._core.revision()
        return self._revision

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __repr__(self) -> str:
        state = 'closed' if self._closed else 'ended' if self._ended else 'open'
        return (f'<cohort.{type(self).__name__} of {self._subject} at revision {self.revision}, '
                f'{state}>')

    def __iter__(self) -> 'Watch[E]':
        return self

    def __next__(self) -> E:
        try:
            while not self._events and not self._ended:
                self._ended = not self._core.next(self._events)
        except BaseException as error:
            if not self._closed:
                self._core.suspend()
                raise
            if not isinstance(error, Error):
                raise
        if not self._events:
            raise StopIteration
        return self._event(*self._events.popleft())

    def close(self) -> None:
        """Closes the stream. A step that waits in another thread ends the iteration. It may be
        called twice."""
        self._revision = self.revision
        self._ended = self._closed = True
        self._core.close()
        self._events.clear()

    def __enter__(self) -> 'Watch[E]':
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()


class GroupWatch(Watch[GroupEvent]):
    """A watch of a group."""

    @property
    def info(self) -> GroupInfo:
        """The group when the watch was opened: its events tell what happened since."""
        return read_group_info(self._core.info())


def group_watch_options(group: str, address: Optional[str], tenant: str, timeout: Timeout,
                        reconnect_timeout: Timeout) -> dict:
    """The options as the extension module reads them."""
    return {'group': group, 'address': coordinator_address(address), 'tenant': tenant,
            'timeout': timeout, 'reconnect_timeout': seconds(reconnect_timeout, 15)}


def watch_group(group: str, *, address: Optional[str] = None, tenant: str = '',
                timeout: Timeout = None, reconnect_timeout: Timeout = 15) -> GroupWatch:
    """Returns an iterator of the events of a group, for its members and for other programs.

        with cohort.watch_group("workers", address="coordinator:7700") as events:
            ranks = {member.rank for member in events.info.members}
            for event in events:
                if event.kind in ("lost", "left"):
                    ranks.discard(event.rank)

    It has all events after `info`, the state of the group at the start. All watches of groups at one
    coordinator share a connection. It ends when the group is closed: after the event, or with NotFound
    if that came while other events were on their way.

    Kinds: joined, candidate, suspected, recovered, lost and left for a member; active when a
    generation is complete, and broken when it ended; view_proposed, view_committed and
    view_refused; error_reported, draining, closed.

    Args:
      group: the group's name.
      address: the coordinator: "host:port", "[::1]:port" or "unix:/path". None: the environment
        variable COHORT_ADDRESS, or else 127.0.0.1:7700.
      tenant: the namespace of the group's name; empty: "default".
      timeout: the iteration ends after so many seconds; None: it does not end.
      reconnect_timeout: how many seconds the coordinator may be away, each time.

    Raises:
      NotFound: there is no such group yet.
    """
    watch = GroupWatch(_core.watch_group(group_watch_options(
        group, address, tenant, timeout, reconnect_timeout)), GroupEvent, f'group {group!r}')
    _lifetime.close_at_exit(watch)
    watch.open()
    return watch
