"""The rendezvous backend of torchrun on a coordinator.

    torchrun --rdzv-backend=cohort --rdzv-endpoint=coordinator:7700 --rdzv-id=job-17 --nnodes=2:4 \\
        --nproc-per-node=8 train.py

The members, rounds and restarts are those of PyTorch's DynamicRendezvousHandler. The coordinator
holds its state, and the store that the agents use. So no agent hosts a store, and each agent may
die. A script takes part by

    import cohort.torch
    dist.init_process_group("gloo", init_method="cohort://")

The wheel has the entry point in the group torchrun.handlers.
"""

import copy
import os
import urllib.parse
import uuid
import zlib
from typing import Callable, Optional, Tuple

import torch.distributed as dist
from torch.distributed.elastic.rendezvous.api import (
    RendezvousConnectionError, RendezvousHandler, RendezvousInfo, RendezvousParameters,
    RendezvousStateError)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    RendezvousBackend, create_handler)

import cohort
from cohort.torch.elastic_clock import use_own_clock
from cohort.torch.job_keys import escape
from cohort.torch.rendezvous import WORKERS_URL
from cohort.torch.store import Store

NAME = 'cohort'
_DEFAULT_PORT = 7700
_CHECKSUM_BYTES = 4
# As `read_timeout` of PyTorch's own backend. Agents survive a shorter absence of the coordinator.
_READ_SECONDS = 60


def _checksum(state: bytes) -> bytes:
    return zlib.crc32(state).to_bytes(_CHECKSUM_BYTES, 'little')


class Backend(RendezvousBackend):
    """The state of one rendezvous: a key of the coordinator, whose revision is the token. Its value
    begins with a checksum."""

    def __init__(self, client: cohort.Store, key: str, timeout: float = _READ_SECONDS):
        """`timeout`, in seconds, limits each call, also while the coordinator is away."""
        self._client = client
        self._key = key
        self._timeout = timeout

    @property
    def name(self) -> str:
        """The backend's name."""
        return NAME

    def get_state(self) -> Optional[Tuple[bytes, int]]:
        """Returns the state and its token; None: there is no state."""
        found = self._call(self._client.get_many, [self._key]).get(self._key)
        return None if found is None else (self._checked(found.value), found.revision)

    def set_state(self, state: bytes,
                  token: Optional[int] = None) -> Optional[Tuple[bytes, int, bool]]:
        """Writes the state if `token` is that of the present one, or if both are None. Returns the
        state that is there afterwards, its token, and whether it was written here."""
        if token is not None and not isinstance(token, int):
            found = self.get_state()  # no token of this backend
            return None if found is None else (*found, False)
        result = self._call(self._client.put, self._key, _checksum(state) + state,
                            expected_revision=token or 0)
        if result.written:
            return state, result.revision, True
        if result.current is None:
            return None
        return self._checked(result.current.value), result.current.revision, False

    def _checked(self, value: bytes) -> bytes:
        state = value[_CHECKSUM_BYTES:]
        if value[:_CHECKSUM_BYTES] != _checksum(state):
            raise RendezvousStateError(f'the state of the rendezvous: key {self._key!r} has '
                                       f'{len(value)} bytes that no agent wrote')
        return state

    def _call(self, function: Callable, *args: object, **options: object):
        try:
            return function(*args, timeout=self._timeout, **options)
        except (cohort.Unavailable, cohort.DeadlineExceeded) as error:
            raise RendezvousConnectionError(f'the state of the rendezvous: {error}') from error
        except cohort.Error as error:
            raise RendezvousStateError(f'the state of the rendezvous: {error}') from error


class Handler(RendezvousHandler):
    """PyTorch's dynamic rendezvous, which also tells the workers of each round their name."""

    def __init__(self, rendezvous: RendezvousHandler, store: Store, run_id: str, name: str):
        self._rendezvous = rendezvous
        self._store = store
        self._run_id = run_id
        self._name = name

    def get_backend(self) -> str:
        """The backend's name."""
        return NAME

    @property
    def use_agent_store(self) -> bool:
        """As PyTorch's: whether workers with the URL env:// use a TCPStore of rank 0's agent."""
        return self._rendezvous.use_agent_store

    def next_rendezvous(self) -> RendezvousInfo:
        """Joins the next round, and blocks until it is complete."""
        info = self._rendezvous.next_rendezvous()
        key = 'cohort/workers'
        if info.rank == 0:
            info.store.set(key, f'{self._name}/round-{self._store.add("cohort/rounds", 1)}')
        workers = urllib.parse.quote(info.store.get(key).decode(), safe='')
        address = self._store.address
        place = (f'/{address[len("unix:"):].lstrip("/")}:' if address.startswith('unix:')
                 else f'{address}/')
        os.environ[WORKERS_URL] = f'cohort://{place}{workers}'
        return info

    def is_closed(self) -> bool:
        """Whether an agent has closed the rendezvous."""
        return self._rendezvous.is_closed()

    def set_closed(self) -> None:
        """Closes the rendezvous for all agents."""
        self._rendezvous.set_closed()

    def num_nodes_waiting(self) -> int:
        """How many agents wait for the next round."""
        return self._rendezvous.num_nodes_waiting()

    def get_run_id(self) -> str:
        """The value of --rdzv-id."""
        return self._run_id

    def shutdown(self) -> bool:
        """Closes the rendezvous, and leaves the job."""
        closed = self._rendezvous.shutdown()
        self._store.close()
        return closed


def _with_run_id(params: RendezvousParameters) -> RendezvousParameters:
    """Returns parameters whose run id no other job has. torchrun's default is "none" for all jobs. The
    only agent of a job shares its name with no other agent, so a job that has the same id, or that
    was killed a moment ago, is not in its way."""
    if params.max_nodes > 1:
        if params.run_id not in ('', 'none'):
            return params
        raise ValueError(
            f'rendezvous backend cohort: the run id is {params.run_id!r}, which other jobs at this '
            'coordinator may have, too. Up to '
            f'{params.max_nodes} nodes need a name of their own for their job: pass --rdzv-id, or '
            'set PET_RDZV_ID')
    alone = copy.copy(params)
    alone.run_id = f'{params.run_id or "none"}-{uuid.uuid4().hex}'
    return alone


def create(params: RendezvousParameters) -> RendezvousHandler:
    """Returns the handler of an agent. `--rdzv-conf` takes `tenant`, `lease` and `read_timeout`
    (60 seconds by default) besides PyTorch's options of the dynamic rendezvous. A job of one node is
    alone, whatever its run id.

    Errors: ValueError (no run id for a job of several nodes), DistNetworkError (the coordinator did
    not answer).
    """
    run_id, params = params.run_id, _with_run_id(params)
    address = params.endpoint or f'127.0.0.1:{_DEFAULT_PORT}'
    if not address.startswith('unix:') and ':' not in address.rpartition(']')[2]:
        address = f'{address}:{_DEFAULT_PORT}'
    try:
        store = Store(f'torchrun/{params.run_id}', address, tenant=params.get('tenant', ''),
                      lease=float(params.get('lease', 60)))
    except dist.DistError as error:
        raise RendezvousConnectionError(str(error)) from error
    # Else PyTorch 2.13 shares a TCPStore of the agent of rank 0, whose address it publishes in the
    # first round alone: an agent that joins a later round waits for it in vain.
    os.environ.setdefault('TORCH_DISABLE_SHARE_RDZV_TCP_STORE', '1')
    backend = Backend(store.client, store.prefix + escape('cohort/state'),
                      float(params.get('read_timeout', _READ_SECONDS)))
    handler = use_own_clock(create_handler(store, backend, params))
    return Handler(handler, store, run_id, params.run_id)


def entry_point() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Returns the function that makes a handler. torchrun calls it."""
    return create
