"""Keys, counters and queues of the coordinator."""

import weakref
from typing import Dict, List, NamedTuple, Optional, Sequence, Union

from cohort import _core
from cohort import _lifetime
from cohort._environment import coordinator_address
from cohort.timeouts import Duration, Timeout, seconds
from cohort.watch import KeyEvent, Watch

Value = Union[str, bytes, bytearray, memoryview]


class KeyValue(NamedTuple):
    """A key with its value."""
    key: str
    value: bytes
    revision: int
    created_revision: int
    expires_in: Optional[float]  # seconds


class PutResult(NamedTuple):
    """Whether a conditional write took place."""
    written: bool
    revision: int  # of the last key written
    current: Optional[KeyValue]  # not written: that of the first key that differs


class RangePage(tuple):
    """A page of keys: the pair (values, after).

    Attributes:
      revision: the revision of the store that the page shows.
      count: how many keys have the prefix, on all pages.
    """
    revision: int
    count: int

    @classmethod
    def of(cls, facts: tuple) -> 'RangePage':
        """The page of the module's tuple."""
        values, after, count, revision = facts
        page = cls(([KeyValue(*value) for value in values], after))
        page.revision = revision
        page.count = count
        return page


def to_bytes(value: Value) -> Union[bytes, bytearray, memoryview]:
    """Returns the bytes of a value. Raises ValueError for a str without a UTF-8 form."""
    try:
        return value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise ValueError('value: the text has no UTF-8 form') from None


def read_put(result: tuple) -> PutResult:
    """Returns the result of the module's tuple."""
    written, revision, current = result
    return PutResult(written, revision, KeyValue(*current) if current else None)


def describe_store(class_name: str, address: str, tenant: str, group: str, closed: bool) -> str:
    """The text of repr for a store."""
    parts = [f'{class_name} {address!r}']
    parts += [f'tenant {tenant!r}'] if tenant else []
    parts += [f'group {group!r}'] if group else []
    return f'<{", ".join(parts)}, {"closed" if closed else "open"}>'


class Store:
    """Keys, counters and queues of the coordinator, for programs that are in no group or in one.

        store = cohort.Store(address="coordinator:7700")
        store.put("checkpoint", b"step-1000")
        print(store.get("checkpoint", wait=10))

    All methods may be called from any thread; each acts once, also if the connection breaks.
    Times are in seconds, or datetime.timedelta. A timeout limits the call beside its `wait`; None
    is the store's. Errors: as ProcessGroup.
    """

    def __init__(self, address: Optional[str] = None, *, tenant: str = '', group: str = '',
                 timeout: Timeout = 30):
        """Never blocks: it connects on first use.

        Args:
          address: the coordinator: "host:port", "[::1]:port" or "unix:/path". None: the environment
            variable COHORT_ADDRESS, or else 127.0.0.1:7700.
          tenant: the namespace; empty: "default".
          group: the keys of this group alone; empty: the tenant's own keys.
          timeout: of calls without their own.
        """
        self._place = coordinator_address(address), tenant, group
        self._core = _core.connect_store(dict(zip(('address', 'tenant', 'group'), self._place)))
        self._timeout = seconds(timeout, 30)
        self._closed = False
        self._watches: 'weakref.WeakSet[Watch]' = weakref.WeakSet()
        _lifetime.close_at_exit(self)

    def put(self, key: str, value: Value, *, expiration: Timeout = None,
            expected_revision: Optional[int] = None, expected_value: Optional[Value] = None,
            timeout: Timeout = None) -> PutResult:
        """Writes a key.

        Args:
          expiration: seconds until the key is deleted.
          expected_revision: writes only if the key's revision is this (0: only if it is absent).
          expected_value: writes only if the key's value is this. An absent key counts as empty.
        """
        return read_put(self._core.put(key, to_bytes(value), expiration, expected_revision,
                                       expected_value, self._limit(timeout)))

    def multi_put(self, values: Dict[str, Value], *, expiration: Timeout = None,
                  timeout: Timeout = None) -> PutResult:
        """Writes all keys in one step: at least one, at most 1000."""
        return read_put(self._core.multi_put(list(values), list(values.values()), expiration,
                                             self._limit(timeout)))

    def get(self, key: str, *, wait: Duration = 0, newer_than: int = 0,
            timeout: Timeout = None) -> Optional[bytes]:
        """Returns the key's value, or None if it is absent after `wait` seconds.

        newer_than: waits for a revision larger than this.
        """
        values = self._core.get([key], wait, newer_than, (), False, self._limit(timeout))[0]
        return values[0][1] if values else None

    def get_many(self, keys: Sequence[str], *, wait: Duration = 0, newer_than: int = 0,
                 timeout: Timeout = None) -> Dict[str, KeyValue]:
        """Returns those of the keys that exist, after at most `wait` seconds for all of them."""
        values = self._core.get(keys, wait, newer_than, (), False, self._limit(timeout))[0]
        return {value[0]: KeyValue(*value) for value in values}

    def missing(self, keys: Sequence[str], *, wait: Duration = 0, or_queue: bool = False,
                timeout: Timeout = None) -> List[str]:
        """Waits until all keys exist, at most `wait` seconds. Returns those that do not.

        or_queue: a key counts as existing while the queue of its name has a value.
        """
        return self._core.get(keys, wait, 0, (), or_queue, self._limit(timeout))[1]

    def range(self, prefix: str, *, after: str = '', page_size: int = 100, keys_only: bool = False,
              timeout: Timeout = None) -> RangePage:
        """Returns one page of the keys with a prefix, and `after` for the next page, which is empty
        after the last one."""
        return RangePage.of(self._core.range(prefix, after, page_size, keys_only,
                                             self._limit(timeout)))

    def delete(self, key: str, *, prefix: bool = False, timeout: Timeout = None) -> int:
        """Deletes the key, or all keys with this prefix. Returns how many there were."""
        return self._core.delete(key, prefix, self._limit(timeout))

    def add(self, key: str, delta: int, *, timeout: Timeout = None) -> int:
        """Adds to a counter, which begins at 0. Returns its new value."""
        return self._core.add(key, delta, self._limit(timeout))

    def append(self, key: str, value: Value, *, timeout: Timeout = None) -> int:
        """Appends to a value, which begins empty. Returns its new length in bytes."""
        return self._core.append(key, to_bytes(value), self._limit(timeout))

    def queue_push(self, queue: str, value: Value, *, expiration: Timeout = None,
                   timeout: Timeout = None) -> int:
        """Appends a value to a queue. Returns the value's sequence number."""
        return self._core.queue_push(queue, to_bytes(value), expiration, self._limit(timeout))

    def queue_pop(self, queue: str, *, wait: Duration = 0,
                  timeout: Timeout = None) -> Optional[bytes]:
        """Takes the oldest value; None if the queue stayed empty for `wait` seconds."""
        return self._core.queue_pop(queue, wait, self._limit(timeout))

    def queue_len(self, queue: str, *, timeout: Timeout = None) -> int:
        """Returns how many values no consumer has taken."""
        lengths = self._core.get((), 0, 0, [queue], False, self._limit(timeout))[3]
        return lengths[0] if lengths else 0

    def watch(self, prefix: str = '', from_revision: int = 0, timeout: Timeout = None, *,
              reconnect_timeout: Timeout = 15) -> Watch[KeyEvent]:
        """Returns an iterator of the changes of keys with a prefix: each once, and in order.

            with store.watch("workers/") as changes:
                for change in changes:
                    print(change.kind, change.key, change.value)

        It has all changes after `from_revision`. If that is 0, it has all changes after this call
        returned, which blocks until the coordinator has answered. See `cohort.Watch` for its end
        and its errors.

        Args:
          from_revision: of an event, of `range`, or of another watch; 0: the present one.
          timeout: the iteration ends after so many seconds; None: it does not end.
          reconnect_timeout: how many seconds the coordinator may be away, each time.
        """
        core = self._core.watch(prefix, from_revision, timeout, seconds(reconnect_timeout, 15))
        watch = Watch(core, KeyEvent, f'keys {prefix!r}')
        self._watches.add(watch)
        return watch.open()

    def _limit(self, timeout: Timeout) -> float:
        return seconds(timeout, self._timeout)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __repr__(self) -> str:
        return describe_store('cohort.Store', *self._place, self._closed)

    def close(self) -> None:
        """Frees the connection, and closes its watches. It may be called twice."""
        self._closed = True
        for watch in _lifetime.living(self._watches):
            watch.close()
        self._core.release()

    def __enter__(self) -> 'Store':
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
