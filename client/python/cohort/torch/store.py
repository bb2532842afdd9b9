"""The store of torch.distributed on a coordinator."""

import datetime
import operator
import time
from typing import Any, Callable, List, Optional, Sequence, Union

import torch.distributed as dist

import cohort
from cohort.torch.job_keys import JobKeys, escape

_Value = Union[str, bytes, bytearray, memoryview]

_DEFAULT_TIMEOUT = datetime.timedelta(seconds=300)
# How long a call waits for a coordinator that is away, at least.
_AWAY_SECONDS = 30
# How often a call that waits asks whether the coordinator still has the job's keys.
_LOOK_SECONDS = 5
# The most keys of one call to the coordinator.
_MOST_KEYS = 1000
# PyTorch's queues have no expiration.
_QUEUE_EXPIRATION = 365 * 86400

# A store that C++ uses must not be collected: PyTorch's C++ object does not keep the Python object.
_open = set()


def _milliseconds(timeout: datetime.timedelta) -> int:
    return round(timeout.total_seconds() * 1000)


class Store(dist.Store):
    """A store of torch.distributed whose keys are in a coordinator.

        store = cohort.torch.Store("job-17", "coordinator:7700")
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)

    It has the methods of TCPStore, with the same results and errors, and no process hosts it: it
    survives each of its clients, and a restart of the coordinator that has a journal.

    All processes of a job pass the same name, and no other job does. The keys last as long as one
    process of the job has the store open: see `cohort.torch.job_keys`.

    All methods may be called from any thread. `get`, `wait`, `multi_get`, `queue_pop` and `barrier`
    block until the store's timeout; the others do not block. Errors: DistStoreError (a wait ended,
    or the coordinator refused the call), DistNetworkError (the coordinator was away for the store's
    timeout, and for 30 seconds at least), ValueError (a key or value that the coordinator does not
    take). A key has 1000 bytes at most, and a value 1 MiB, unless the coordinator has other limits.
    """

    def __init__(self, name: str, address: str = '127.0.0.1:7700', *,
                 timeout: datetime.timedelta = _DEFAULT_TIMEOUT, tenant: str = '',
                 lease: float = 60, connect_timeout: float = 30):
        """Connects, and joins the job or begins it.

        Args:
          name: the job's name, the same in all its processes.
          address: the coordinator: "host:port", "[::1]:port" or "unix:/path".
          timeout: how long waiting methods block.
          tenant: the namespace of the job's name; empty: "default".
          lease: if all processes of the job are killed, its keys last so many seconds.
          connect_timeout: how many seconds it waits for the coordinator.

        Raises:
          DistNetworkError: the coordinator did not answer for `connect_timeout`.
        """
        super().__init__()
        if not name:
            raise ValueError('store: the name of the job is empty')
        self.set_timeout(timeout)
        self._describe = f'store "{name}" at {address}'
        self._call = _Calls(self._describe)
        client = self._call('open', cohort.Store, address, tenant=tenant)
        self._attach(self._call('open', JobKeys, client, name, address, lease,
                                connect_timeout))

    def _attach(self, keys: JobKeys) -> None:
        self._keys = keys
        self._client = keys.client
        self._prefix = keys.prefix
        self._group: Optional[cohort.ProcessGroup] = None
        self._call.keys = keys
        _open.add(self)

    @property
    def name(self) -> str:
        """The job's name."""
        return self._keys.name

    @property
    def address(self) -> str:
        """The coordinator's address."""
        return self._keys.address

    @property
    def client(self) -> cohort.Store:
        """The store of the coordinator, with the keys of all jobs."""
        return self._client

    @property
    def prefix(self) -> str:
        """Begins the job's keys in `client`."""
        return self._prefix

    # --- Keys.

    def set(self, key: str, value: _Value) -> None:
        """Writes a key."""
        self._call('set', self._client.put, self._prefix + escape(key), value,
                   timeout=self._patience())

    def get(self, key: str) -> bytes:
        """Returns the value of a key. Waits until it exists."""
        limit = self.timeout
        wait = limit.total_seconds()
        value = self._wait_for('get', self._client.get, self._prefix + escape(key), wait=wait,
                               is_over=lambda value: value is not None)
        if value is None:
            self._raise_missing(limit, [key])
        return value

    def add(self, key: str, amount: int) -> int:
        """Adds to a key, which begins at 0 and may have been set to decimal text. Returns
        the sum."""
        return self._call('add', self._client.add, self._prefix + escape(key),
                          operator.index(amount), timeout=self._patience())

    def compare_set(self, key: str, expected_value: _Value, desired_value: _Value) -> bytes:
        """Writes `desired_value` if the key has the expected value, or if it is absent and that is
        empty. Returns the key's value then, or `expected_value` if the key is absent."""
        result = self._call('compare_set', self._client.put, self._prefix + escape(key),
                            desired_value, expected_value=expected_value,
                            timeout=self._patience())
        if result.written:
            return _to_bytes(desired_value)
        return _to_bytes(expected_value) if result.current is None else result.current.value

    def append(self, key: str, value: _Value) -> None:
        """Appends to a key, which begins empty."""
        self._call('append', self._client.append, self._prefix + escape(key), value,
                   timeout=self._patience())

    def delete_key(self, key: str) -> bool:
        """Deletes a key. Returns whether it existed."""
        return self._call('delete_key', self._client.delete, self._prefix + escape(key),
                          timeout=self._patience()) > 0

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist. A queue with a value counts as a key."""
        return not any(self._call('check', self._client.missing, part, or_queue=True,
                                  timeout=self._patience()) for part in self._parts(keys))

    def wait(self, keys: Sequence[str], timeout: Optional[datetime.timedelta] = None) -> None:
        """Waits until all keys exist. A queue with a value counts as a key."""
        limit = self.timeout if timeout is None else timeout
        wait = limit.total_seconds()
        end = time.monotonic() + wait
        for number, part in enumerate(self._parts(keys)):
            if number > 0:
                wait = max(0, end - time.monotonic())
            if self._wait_for('wait', self._client.missing, part, wait=wait, or_queue=True,
                              is_over=operator.not_):
                self._raise_missing(limit, keys)

    def multi_get(self, keys: Sequence[str]) -> List[bytes]:
        """Returns the values of the keys. Waits until all of them exist."""
        limit = self.timeout
        end = time.monotonic() + limit.total_seconds()
        found = {}
        for part in self._parts(keys):
            found.update(self._get_many(part, end))
        names = [self._prefix + escape(key) for key in keys]
        if not all(name in found for name in names):
            self._raise_missing(limit, keys)
        return [found[name].value for name in names]

    def _get_many(self, names: List[str], end: float) -> dict:
        wait = max(0, end - time.monotonic())
        try:
            return self._wait_for('get', self._client.get_many, names, wait=wait,
                                  is_over=lambda found: len(found) == len(set(names)))
        except _TooLarge:
            if len(names) == 1:
                raise
        half = len(names) // 2
        return {**self._get_many(names[:half], end), **self._get_many(names[half:], end)}

    def multi_set(self, keys: Sequence[str], values: Sequence[_Value]) -> None:
        """Writes several keys: up to 1000 of them in one step."""
        keys, values = list(keys), list(values)
        if len(keys) != len(values):
            raise dist.DistStoreError(f'multi_set of {self._describe}: {len(keys)} keys, '
                                      f'{len(values)} values')
        pairs = list({self._prefix + escape(key): value
                      for key, value in zip(keys, values)}.items())
        for first in range(0, len(pairs), _MOST_KEYS):
            self._call('multi_set', self._client.multi_put, dict(pairs[first:first + _MOST_KEYS]),
                       timeout=self._patience())

    def num_keys(self) -> int:
        """Returns the number of keys. Unlike TCPStore, the store has no key of its own."""
        return self._call('num_keys', self._client.range, self._prefix, page_size=1, keys_only=True,
                          timeout=self._patience()).count

    def list_keys(self) -> List[str]:
        """Returns all keys."""
        return self._call('list_keys', self._keys.keys)

    # --- Queues.

    def queue_push(self, key: str, value: _Value) -> None:
        """Appends a value to a queue."""
        name = self._call('queue_push', self._keys.queue_name, key, pushes=True)
        self._call('queue_push', self._client.queue_push, name, value,
                   expiration=_QUEUE_EXPIRATION, timeout=self._patience())

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Takes the oldest value of a queue. Waits for one, or raises QueueEmptyError if `block` is
        false."""
        limit = self.timeout
        wait = limit.total_seconds() if block else 0
        value = self._wait_for('queue_pop', self._client.queue_pop, self._keys.queue_name(key),
                               wait=wait, is_over=lambda value: value is not None)
        if value is not None:
            return value
        if not block:
            raise dist.QueueEmptyError(f'queue is empty: {key} of {self._describe}')
        raise dist.DistStoreError(
            f'wait timeout after {_milliseconds(limit)}ms, keys: /{key} of {self._describe}')

    def queue_len(self, key: str) -> int:
        """Returns how many values a queue has."""
        return self._call('queue_len', self._client.queue_len, self._keys.queue_name(key),
                          timeout=self._patience())

    # --- The rest.

    def barrier(self, key: str, world_size: int,
                timeout: Optional[datetime.timedelta] = None) -> None:
        """Waits until `world_size` processes have called it with this key. Later calls with the
        key do not wait, as in TCPStore."""
        limit = self.timeout if timeout is None else timeout
        last = f'{key}/last_member'
        if self.add(f'{key}/num_members', 1) == world_size:
            self.set(last, '1')
        wait = limit.total_seconds()
        if self._wait_for('barrier', self._client.missing, [self._prefix + escape(last)], wait=wait,
                          is_over=operator.not_):
            raise dist.DistStoreError(
                f'barrier timeout after {_milliseconds(limit)}ms, key: {key} of {self._describe}: '
                f'{self.add(f"{key}/num_members", 0)} of {world_size} have called it')

    def has_extended_api(self) -> bool:
        """True: it has append, multi_get and multi_set."""
        return True

    def clone(self) -> 'Store':
        """Returns a store with the same keys and connection, and a timeout of its own."""
        copy = type(self).__new__(type(self))
        dist.Store.__init__(copy)
        copy.set_timeout(self.timeout)
        copy._describe = self._describe  # pylint: disable=protected-access
        copy._call = _Calls(self._describe)  # pylint: disable=protected-access
        copy._attach(self._keys.share())  # pylint: disable=protected-access
        return copy

    def hold(self, group: cohort.ProcessGroup) -> None:
        """Leaves `group` when the store is closed."""
        self._group = group

    def close(self) -> None:
        """Leaves the job. The last process that does so deletes the job's keys. Without it, the
        store is closed when the interpreter ends. It may be called twice."""
        if self in _open:
            _open.discard(self)
            self._keys.release()
            if self._group is not None:
                self._group.close()

    def __repr__(self) -> str:
        return f'cohort.torch.Store({self._keys.name!r}, {self._keys.address!r})'

    # The names by which PyTorch's C++ calls these methods.
    getNumKeys = num_keys  # pylint: disable=invalid-name
    deleteKey = delete_key  # pylint: disable=invalid-name

    def _wait_for(self, operation: str, function: Callable, *args: Any, wait: float,
                  is_over: Callable[[Any], bool], **options: Any) -> Any:
        """Makes a call that waits at the coordinator, until is_over(result) or for `wait` seconds.
        Raises an error if the coordinator has lost the job's keys."""
        end = time.monotonic() + wait
        left = wait
        while True:
            result = self._call(operation, function, *args, wait=min(left, _LOOK_SECONDS),
                                timeout=left + _AWAY_SECONDS, **options)
            left = end - time.monotonic()
            if left <= 0 or is_over(result):
                return result
            self._call(operation, self._keys.look, left + _AWAY_SECONDS)

    def _patience(self) -> float:
        """How many seconds a call that does not block waits for a coordinator that is away."""
        return max(_AWAY_SECONDS, self.timeout.total_seconds())

    def _parts(self, keys: Sequence[str]) -> List[List[str]]:
        """Returns the coordinator's names of the keys, in as many parts as calls are needed."""
        if isinstance(keys, (str, bytes)):
            raise TypeError(f'keys: expected a list of str, got {keys!r}')
        names = [self._prefix + escape(key) for key in keys]
        if 0 < len(names) <= _MOST_KEYS:
            return [names]
        return [names[first:first + _MOST_KEYS] for first in range(0, len(names), _MOST_KEYS)]

    def _raise_missing(self, limit: datetime.timedelta, keys: Sequence[str]) -> None:
        names = {name for part in self._parts(keys) for name in self._call(
            'check', self._client.missing, part, or_queue=True, timeout=self._patience())}
        missing = [key for key in dict.fromkeys(keys) if self._prefix + escape(key) in names]
        raise dist.DistStoreError(
            f'wait timeout after {_milliseconds(limit)}ms, keys: '
            + ', '.join(f'/{key}' for key in missing or keys) + f' of {self._describe}')


class _TooLarge(dist.DistStoreError):
    """A limit of the coordinator."""


def _to_bytes(value: _Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class _Calls:
    """Makes calls to the coordinator, whose errors become those of PyTorch."""

    def __init__(self, describe: str):
        self.keys: Optional[JobKeys] = None
        self._describe = describe

    def __call__(self, operation: str, function: Callable, *args: Any, **options: Any) -> Any:
        if self.keys is not None and self.keys.loss is not None:
            raise dist.DistStoreError(f'{operation} of {self._describe}: {self.keys.loss}')
        try:
            result = function(*args, **options)
            if self.keys is None or self.keys.loss is None:
                return result
        except (cohort.Unavailable, cohort.DeadlineExceeded) as error:
            raise dist.DistNetworkError(f'{operation} of {self._describe}: {error}') from error
        except cohort.InvalidArgument:
            raise
        except cohort.ResourceExhausted as error:
            raise _TooLarge(f'{operation} of {self._describe}: {error}') from error
        except cohort.Error as error:
            raise dist.DistStoreError(f'{operation} of {self._describe}: {error}') from error
        raise dist.DistStoreError(f'{operation} of {self._describe}: {self.keys.loss}')
