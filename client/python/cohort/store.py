"""Keys, counters and queues of the coordinator."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from cohort import _core
from cohort import _lifetime

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


def to_bytes(value: Value) -> Union[bytes, bytearray, memoryview]:
    """Returns the bytes of a value."""
    return value.encode() if isinstance(value, str) else value


def read_put(result: tuple) -> PutResult:
    """Returns the result of the module's tuple."""
    written, revision, current = result
    return PutResult(written, revision, KeyValue(*current) if current else None)


class Store:
    """Keys, counters and queues of the coordinator, for programs that are in no group or in one.

        store = cohort.Store(address="coordinator:7700")
        store.put("checkpoint", b"step-1000")
        print(store.get("checkpoint", wait=10))

    All methods may be called from any thread; each acts once, also if the connection breaks.
    Timeouts are in seconds. Errors: as ProcessGroup.
    """

    def __init__(self, address: str = '127.0.0.1:7700', *, tenant: str = '', group: str = ''):
        """Never blocks: it connects on first use.

        Args:
          address: the coordinator: "host:port", "[::1]:port" or "unix:/path".
          tenant: the namespace; empty: "default".
          group: the keys of this group alone; empty: the tenant's own keys.
        """
        self._core = _core.connect_store({'address': address, 'tenant': tenant, 'group': group})
        _lifetime.close_at_exit(self)

    def put(self, key: str, value: Value, *, expiration: Optional[float] = None,
            expected_revision: Optional[int] = None, expected_value: Optional[Value] = None,
            timeout: float = 30) -> PutResult:
        """Writes a key.

        Args:
          expiration: seconds until the key is deleted.
          expected_revision: writes only if the key's revision is this (0: only if it is absent).
          expected_value: writes only if the key's value is this. An absent key counts as empty.
        """
        return read_put(self._core.put(key, to_bytes(value), expiration, expected_revision,
                                       expected_value, timeout))

    def multi_put(self, values: Dict[str, Value], *, expiration: Optional[float] = None,
                  timeout: float = 30) -> PutResult:
        """Writes all keys in one step: at least one, at most 1000."""
        return read_put(self._core.multi_put(list(values), list(values.values()), expiration,
                                             timeout))

    def get(self, key: str, *, wait: float = 0, newer_than: int = 0,
            timeout: float = 30) -> Optional[bytes]:
        """Returns the key's value, or None if it is absent after `wait` seconds.

        newer_than: waits for a revision larger than this.
        """
        found = self.get_many([key], wait=wait, newer_than=newer_than, timeout=timeout)
        return found[key].value if key in found else None

    def get_many(self, keys: Sequence[str], *, wait: float = 0, newer_than: int = 0,
                 timeout: float = 30) -> Dict[str, KeyValue]:
        """Returns those of the keys that exist, after at most `wait` seconds for all of them."""
        values = self._core.get(keys, wait, newer_than, (), timeout)[0]
        return {value[0]: KeyValue(*value) for value in values}

    def range(self, prefix: str, *, after: str = '', page_size: int = 100, keys_only: bool = False,
              timeout: float = 30) -> Tuple[List[KeyValue], str]:
        """Returns one page of the keys with a prefix, and `after` for the next page, which is empty
        after the last one."""
        values, following, _, _ = self._core.range(prefix, after, page_size, keys_only, timeout)
        return [KeyValue(*value) for value in values], following

    def delete(self, key: str, *, prefix: bool = False, timeout: float = 30) -> int:
        """Deletes the key, or all keys with this prefix. Returns how many there were."""
        return self._core.delete(key, prefix, timeout)

    def add(self, key: str, delta: int, *, timeout: float = 30) -> int:
        """Adds to a counter, which begins at 0. Returns its new value."""
        return self._core.add(key, delta, timeout)

    def append(self, key: str, value: Value, *, timeout: float = 30) -> int:
        """Appends to a value, which begins empty. Returns its new length in bytes."""
        return self._core.append(key, to_bytes(value), timeout)

    def queue_push(self, queue: str, value: Value, *, expiration: Optional[float] = None,
                   timeout: float = 30) -> int:
        """Appends a value to a queue. Returns the value's sequence number."""
        return self._core.queue_push(queue, to_bytes(value), expiration, timeout)

    def queue_pop(self, queue: str, *, wait: float = 0, timeout: float = 30) -> Optional[bytes]:
        """Takes the oldest value; None if the queue stayed empty for `wait` seconds."""
        return self._core.queue_pop(queue, wait, timeout)

    def queue_len(self, queue: str, *, timeout: float = 30) -> int:
        """Returns how many values no consumer has taken."""
        lengths = self._core.get((), 0, 0, [queue], timeout)[3]
        return lengths[0] if lengths else 0

    def close(self) -> None:
        """Frees the connection. It may be called twice."""
        self._core.release()

    def __enter__(self) -> 'Store':
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
