"""The process group of PyTorch that runs on a group of Cohort."""

import contextlib
import datetime
import operator
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

import cohort
from cohort.torch import farewell
from cohort.torch.agreement import Agreement
from cohort.torch.call_queue import CallQueue
from cohort.torch.collectives import Collectives
from cohort.torch.flat import movable
from cohort.torch.health import Health
from cohort.torch.messages import Context, Messages
from cohort.torch.monitored_barrier import monitored_barrier
from cohort.torch.options import Options
from cohort.torch.work import AllOf, CompletedWork, StreamWork


class _Message(NamedTuple):
    """A send or a receive on the GPU."""
    tensor: torch.Tensor
    peer: int
    sends: bool


class ProcessGroup(Collectives, dist.ProcessGroup):
    """A process group of torch.distributed. init_process_group("cohort") and new_group make it.

    Its calls raise the errors of Cohort, which are RuntimeErrors: Aborted (a rank is lost; the text
    names it), DeadlineExceeded (the timeout; names the ranks that did not call), InvalidArgument
    (the arguments of the ranks do not fit together; names two that differ).

    Attributes:
      cohort_group: the cohort.Group. Its calls take their turn in the order of the collectives.
      cohort_options: the Options.
    """

    def __init__(self, group: cohort.Group, store: Any, common: Agreement, options: Options,
                 timeout: datetime.timedelta, global_ranks: Sequence[int]):
        """For `backend.connect`. `group` is complete, and `common` is what its ranks agreed on."""
        # PyTorch 2.13 makes no subclass of Python with the constructor that takes the store.
        dist.ProcessGroup.__init__(self, group.rank, group.size)
        self._store = store
        self.cohort_group = group
        self.cohort_options = options
        self._common = common
        self._core = group._core  # pylint: disable=protected-access
        self._run = self._core.run
        self._rank, self._size = group.rank, group.size
        self._on_gpu = group.device != 'cpu'
        self._seconds = timeout.total_seconds()
        self._global_ranks = list(global_ranks) or list(range(self._size))
        self._calls = CallQueue(common.name, self._interrupted)
        self._coalesced: Optional[List[dist._Work]] = None
        self._collected: List[_Message] = []
        self._group_name, self._group_desc = '', ''
        self._sequence = 0
        self._messages: Optional[Messages] = None
        self._health = Health(common.name, self._look)
        self._closed = False
        farewell.leave_at_exit(self)

    # --- Facts, as PyTorch asks for them.

    @property
    def cohort_name(self) -> str:
        """The name of the group of Cohort."""
        return self._common.name

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return self._size

    def getRank(self) -> int:  # pylint: disable=invalid-name
        """For C++."""
        return self._rank

    def getSize(self) -> int:  # pylint: disable=invalid-name
        """For C++."""
        return self._size

    def getBackendName(self) -> str:  # pylint: disable=invalid-name
        """For C++."""
        return 'cohort'

    def getGroupName(self) -> str:  # pylint: disable=invalid-name
        """The name that PyTorch has for the group; for C++, which has `group_name` of it."""
        return self._group_name

    def setGroupName(self, name: str) -> None:  # pylint: disable=invalid-name
        """For C++."""
        self._group_name = name

    def getGroupDesc(self) -> str:  # pylint: disable=invalid-name
        """What PyTorch says the group is for."""
        return self._group_desc

    def setGroupDesc(self, text: str) -> None:  # pylint: disable=invalid-name
        """For C++."""
        self._group_desc = text

    def name(self) -> str:
        """The name of the backend."""
        return 'cohort'

    _get_backend_name = name

    @property
    def _device_types(self) -> List[torch.device]:
        types = ['cpu', 'cuda'] if self._on_gpu else ['cpu']
        return [torch.device(name) for name in types]

    def _get_backend(self, device: torch.device) -> 'ProcessGroup':
        if torch.device(device).type not in [each.type for each in self._device_types]:
            raise RuntimeError(
                f'process group {self.group_name} has no backend for {device}: it has '
                f'{[each.type for each in self._device_types]}; for a GPU pass device_id to '
                'init_process_group, or call torch.cuda.set_device before it')
        return self

    getBackend = _get_backend  # for C++

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False
    supports_shrinking = False
    supports_window = False
    supports_reconfigure = False

    @property
    def options(self) -> 'ProcessGroup':
        """Options of a backend, as PyTorch reads them: `_timeout` and `global_ranks_in_group`."""
        return self

    @property
    def _timeout(self) -> datetime.timedelta:
        return datetime.timedelta(seconds=self._seconds)

    @property
    def global_ranks_in_group(self) -> List[int]:
        """The global ranks of the group's ranks."""
        return list(self._global_ranks)

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether `allocate_tensor` works."""
        return False

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the timeout of later calls without their own."""
        self._seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _has_hooks(self) -> bool:
        return False

    def get_group_store(self) -> Any:
        """The store of PyTorch, with the prefix of this group."""
        return self._store

    # --- Messages.

    def send(self, tensors, destination: int, tag: int = 0) -> dist._Work:
        """See torch.distributed.isend. The result is over when the tensor may be used again. A
        wrong tensor on the host is an error of both ranks, as in a collective."""
        destination = self._peer('send to', destination)
        tensor, = tensors
        if tensor.is_cuda:
            return self._on_stream(_Message(tensor, destination, True))
        return self._issued(self._get_messages().send(tensor, destination, tag))

    def recv(self, tensors, source: int, tag: int = 0) -> dist._Work:
        """See torch.distributed.irecv."""
        source = self._peer('recv from', source)
        tensor, = tensors
        if tensor.is_cuda:
            return self._on_stream(_Message(tensor, source, False))
        return self._issued(self._get_messages().receive(tensor, source, tag))

    def recv_anysource(self, tensors, tag: int = 0) -> dist._Work:
        """See torch.distributed.irecv without a source."""
        tensor, = tensors
        return self._issued(self._get_messages().receive(tensor, None, tag))

    def _peer(self, call: str, rank: Any) -> int:
        with contextlib.suppress(TypeError):
            if 0 <= operator.index(rank) < self._size:
                return operator.index(rank)
        raise cohort.InvalidArgument(
            f'{self._describe(call)}: expected a rank of 0..{self._size - 1}, got {rank!r}')

    def _refuse_message(self, sends: bool, peer: Optional[int], tag: int, text: str) -> None:
        """Takes the turn of a message whose arguments PyTorch has refused on this rank."""
        messages = self._get_messages()
        if sends:
            messages.refuse_send(peer, tag, text)
        else:
            messages.refuse_receive(peer, tag, text)

    def _on_stream(self, message: '_Message') -> dist._Work:
        """A message on the GPU is enqueued on the current stream. As with NCCL, it has no tag.
        Between _start_coalescing and _end_coalescing it waits for the others."""
        if self._coalesced is not None:
            self._collected.append(message)
            return CompletedWork([message.tensor])
        return self._exchange([message])

    def _exchange_collected(self) -> None:
        messages, self._collected = self._collected, []
        if messages:
            self._issued(self._exchange(messages))

    def _exchange(self, messages: List['_Message']) -> dist._Work:
        """Messages on the GPU as one call, in which none waits for another."""
        if self._calls.busy:
            self._calls.start(lambda: None, (), lambda: self._describe('exchange')).wait()
        self._calls.settle()
        arrays = [movable(each.tensor) for each in messages]
        self.cohort_group.exchange(
            [(array, each.peer) for array, each in zip(arrays, messages) if each.sends],
            [(array, each.peer) for array, each in zip(arrays, messages) if not each.sends],
            timeout=self._seconds)
        tensors = [each.tensor for each in messages]
        return StreamWork(tensors, tensors[0].device, arrays)

    def batch_isend_irecv(self, operations: Sequence[dist.P2POp]) -> List[dist._Work]:
        """See torch.distributed.batch_isend_irecv. Messages on the GPU are one call."""
        of_gpu = [each for each in operations if each.tensor.is_cuda]
        works = [each.op(each.tensor, group=self, tag=each.tag, **{
            'group_dst' if each.op is dist.isend else 'group_src': each.group_peer})
                 for each in operations if not each.tensor.is_cuda]
        if of_gpu:
            works.append(self._exchange([_Message(each.tensor, each.group_peer,
                                                  each.op is dist.isend) for each in of_gpu]))
        return works

    def _issued(self, work: dist._Work) -> dist._Work:
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    @staticmethod
    def _all_of(works: List[dist._Work]) -> dist._Work:
        return AllOf(works)

    def _get_messages(self) -> Messages:
        if self._messages is None:
            self._messages = Messages(Context(
                self._rank, self._size, self._common.name, self._join_another,
                lambda: cohort.Store(self._common.address, tenant=self._common.tenant,
                                     group=self._common.name),
                self._health, lambda: self._seconds, self._describe))
        return self._messages

    def _join_another(self, name: str, **options: Any) -> cohort.Group:
        return cohort.Group(name, address=self._common.address, tenant=self._common.tenant,
                            lease=self.cohort_options.lease,
                            advertised_host=self.cohort_options.advertised_host,
                            host_folder=self.cohort_options.host_folder, **options)

    def _look(self) -> Tuple[Dict[int, cohort.Error], Optional[cohort.Error]]:
        """Returns the errors about the ranks that have left, and the group's error if no other rank
        is there. Raises the error of a broken group."""
        left: Dict[int, cohort.Error] = {}
        for rank in range(self._size):
            if rank == self._rank:
                continue
            try:
                self.cohort_group.await_message([rank], timeout=0)
            except cohort.DeadlineExceeded:
                pass
            except cohort.Error as error:
                left[rank] = error
        is_alone = left and len(left) == self._size - 1
        return left, left[(self._rank + 1) % self._size] if is_alone else None

    # --- Agreement, subgroups and the end.

    def monitored_barrier(self, timeout: Optional[datetime.timedelta] = None,
                          wait_all_ranks: bool = False) -> None:
        """See torch.distributed.monitored_barrier."""
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        self._calls.blocks = True
        try:
            monitored_barrier(self.cohort_group, str(self.group_name), seconds, wait_all_ranks)
        finally:
            self._calls.blocks = False

    def split_group(self, ranks: Sequence[int], timeout: Optional[datetime.timedelta] = None,
                    opts: Any = None, group_name: Optional[str] = None,
                    group_desc: Optional[str] = None, device_types: Any = None
                    ) -> Optional['ProcessGroup']:
        """Returns a process group of `ranks`, which are ranks of this group; None on other ranks.
        The ranks call it together, and in the same order as other splits."""
        # pylint: disable-next=import-outside-toplevel,cyclic-import
        from cohort.torch.backend import connected
        if not ranks or len(set(ranks)) != len(ranks) or not all(
                0 <= rank < self._size for rank in ranks):
            raise ValueError(f'split_group: expected different ranks of 0..{self._size - 1}, got '
                             f'{list(ranks)}')
        if self._rank not in ranks:
            return None
        members = sorted(ranks)
        name = group_name or f'{self.group_name}:split:{"_".join(map(str, members))}'
        store = dist.PrefixStore(f'{name}/', self.get_group_store())
        group = connected(
            store, members.index(self._rank), len(members), timeout or self._timeout, name,
            [self._global_ranks[rank] for rank in members],
            opts if isinstance(opts, Options) else self.cohort_options)
        group._set_group_name(name)
        group._set_group_desc(group_desc or f'{self.group_desc}:split')
        return group

    splitGroup = split_group

    def abort(self) -> None:
        """Ends the calls in flight on all ranks, with this rank's name, and leaves the group."""
        if not self._closed:
            reason = f'rank {self._rank} aborted process group {self.group_name}'
            self.cohort_group.abort(reason)
            farewell.leave(self, reason)

    def shutdown(self) -> None:
        """Leaves the group. A blocking collective of another thread ends at once, and calls that
        were started have a second to end. Then all ranks get Aborted with this rank's name, and
        messages of this rank end with Cancelled. A rank without such calls first waits some seconds
        for the others, which may still be in the last call: see `farewell` of Options."""
        if not self._closed:
            farewell.say(self)
            farewell.leave(self)

    def failure(self, patience: float = 1) -> Optional[cohort.Error]:
        """Returns the error that broke the group, with the lost rank as `culprit`. Returns None if
        the group is not broken within `patience` seconds.

        A call raises the error itself. DDP and autograd raise a RuntimeError with its text instead,
        which this method tells from an error of the program.
        """
        return self._health.error(patience)

    def _interrupted(self, call: str, error: BaseException) -> None:
        """The handler of a signal has ended the wait for an asynchronous call, which the other
        ranks wait for."""
        self.cohort_group.abort(
            f'rank {self._rank} aborted: {type(error).__name__} in the wait for {call}')

    def _await_calls(self, seconds: float) -> bool:
        """Waits for calls in flight. Returns whether the collectives are over; messages that are
        not end with Cancelled."""
        end = time.monotonic() + seconds
        if self._calls.blocks or not self._calls.drain(seconds):
            return False
        if self._messages is not None and not self._messages.await_calls(end):
            self._messages.close('the process group was destroyed', 0)
        return True

    def _end_calls(self, reason: str, patience: float, asks: bool) -> bool:
        """Ends the calls of this rank. Waits at most about `patience` seconds. `asks` and the
        result are those of Messages.close."""
        self._closed = True
        self._health.stop()
        answers = self._messages is None or self._messages.close(reason, patience, asks)
        self._calls.stop()
        return answers

    def _join_threads(self, end: float) -> None:
        """Waits for the threads until a time, after _end_calls."""
        self._health.join(end)
        self._calls.join(end)
        if self._messages is not None:
            self._messages.join(end)

    def __repr__(self) -> str:
        return f'<cohort.torch.ProcessGroup {self._common.name}, rank {self._rank} of {self._size}>'
