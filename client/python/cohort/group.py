"""Collectives and messages between processes that are the ranks of a group."""

import operator
from typing import (Any, Dict, List, Literal, NamedTuple, Optional, Sequence, SupportsIndex, Tuple,
                    Union, overload)

from cohort import _core
from cohort import _lifetime
from cohort import arrays
from cohort.arrays import Array
from cohort.collectives import A, Collectives
from cohort.errors import InvalidArgument
from cohort.group_objects import GroupObjects
from cohort.pending_call import PendingCall
from cohort.process_group import membership_options
from cohort.ragged_collectives import RaggedCollectives
from cohort.scans import Scans
from cohort.tensor_maps import TensorMaps
from cohort.timeouts import Timeout, seconds


class PeerStats(NamedTuple):
    """The payload exchanged with one rank since the generation began."""
    bytes_sent: int
    messages_sent: int
    bytes_received: int
    messages_received: int


def group_options(group: str, *, world_size: Optional[int] = None, rank: Optional[int] = None,
                  address: Optional[str] = None, advertised_host: str = '',
                  host_identity: str = '', host_folder: str = '', device: Any = None,
                  placement: Optional[str] = None, device_heap_bytes: int = 0,
                  worker: Optional[str] = None, attached: bool = False,
                  **membership: Any) -> dict:
    """The options of `Group` as the extension module reads them."""
    if address is None and worker:
        address = ''
    options = membership_options(group, world_size=world_size, rank=rank, address=address,
                                 **membership)
    number = arrays.device_number(device)
    options.update(
        advertised_host=advertised_host, host_identity=host_identity, host_folder=host_folder,
        device=number, placement=placement, device_heap_bytes=device_heap_bytes, worker=worker,
        attached=attached, nccl_library='' if number is None else arrays.nccl_library())
    return options


class Group(Collectives, RaggedCollectives, Scans, GroupObjects, TensorMaps):
    """A group in which this process is a rank: collectives on tensors, messages and objects.

        group = cohort.Group("trainer", rank=0, world_size=2, address="coordinator:7700")
        total = group.all_reduce(x)               # a new array
        group.all_reduce(x, out=x)                # in place
        group.all_reduce(x, out=y, op="max")
        call = group.all_reduce(x, out=x, wait=False)
        call.wait()                               # in a coroutine: await call

    All ranks call the same collectives in the same order, with the same type, shape, root and
    reduction. A call blocks until its arrays may be used again, at most `timeout` seconds (None: the
    group's), and releases the GIL meanwhile. With `wait=False` it returns a
    PendingCall at once, which coroutines may await. Calls run in the order in which they were
    started: a blocking call waits for those that are pending, which counts for its timeout; the
    timeout of a PendingCall begins when the calls before it have ended. One thread calls a group;
    threads that call it in different orders on different ranks mix the values of equal calls.

    Arrays are numpy arrays, tensors of PyTorch, or objects with the buffer protocol or __dlpack__,
    of any strides. Contiguous memory from `empty`, on all ranks, is the fast case: then
    nothing is copied. `out` is written in place; None makes a new array of the input's library.

    In a group with `device`, arrays may be on this rank's GPU, on all ranks alike. A collective or a
    message of theirs returns once its work is enqueued on PyTorch's current stream; arrays of other
    libraries use the default stream. `timeout` then limits the work on the GPU. An error of the
    work is raised by a later call, or by `await_streams`. A wrong argument raises an exception on
    its rank alone, and the others wait for it until the timeout.

    Errors of all collectives: InvalidArgument (ranks called different collectives, or the arguments
    of one do not fit; all ranks get it, and the group stays usable), DeadlineExceeded (names the
    ranks that did not call), Aborted (a rank is lost; call `rejoin`), ResourceExhausted.
    """

    _class_name = 'cohort.Group'

    def __init__(self, group: str, *, world_size: Optional[int] = None, rank: Optional[int] = None,
                 address: Optional[str] = None, tenant: str = '', min_world_size: int = 0,
                 member: str = '', timeout: Timeout = 300, join_timeout: Timeout = 300,
                 lease: Timeout = 30, data_expiration: Timeout = 3600, parameters_digest: str = '',
                 labels: Optional[Dict[str, str]] = None, advertised_host: str = '',
                 host_identity: str = '', host_folder: str = '', device: Any = None,
                 placement: Optional[str] = None, device_heap_bytes: int = 0,
                 worker: Optional[str] = None, attached: bool = False):
        """Joins, waits until the group is complete, and connects the ranks.

        Args:
          world_size, rank: as ProcessGroup; without `world_size` both come from the launcher.
          address: the coordinator. None: with `worker` the worker's, or else as ProcessGroup.
          advertised_host: the address to which ranks on other hosts connect, without a port. Empty:
            the local address towards the coordinator.
          host_identity: ranks with different names share no memory. Empty: this machine.
          host_folder: a folder that containers of one machine mount, so that their ranks share memory
            across network namespaces. Empty: COHORT_HOST_FOLDER. With `worker`, the folder in which
            this process meets the daemon.
          device: this rank's GPU: its number in CUDA, "cuda:1", or torch.device("cuda", 1).
          placement: which arrays the collectives take, the same on all ranks: "host", "device" or
            "both". None: "both" with `device`, else "host".
          device_heap_bytes: the bytes of GPU memory that is registered with NCCL. `empty` uses it
            while there is room. In a collective, either all ranks' arrays lie in it, or none.
          worker: the address of a worker daemon that has this rank: "host:port" or "unix:/path". It
            runs the collectives. The options labels, advertised_host and host_identity are then
            the daemon's.
          attached: this process runs the collectives itself, in memory of the worker on this host;
            the worker keeps the membership and watches this process.
          The others: as ProcessGroup.

        Raises:
          Those of ProcessGroup; Unavailable or DeadlineExceeded name a rank or a worker that could
          not be connected. With `device`: FailedPrecondition (no GPU, no driver, or NCCL too old),
          NotFound (no NCCL; lists the paths that were tried), InvalidArgument (no such GPU).
        """
        self._join(group_options(
            group, world_size=world_size, rank=rank, address=address, tenant=tenant,
            min_world_size=min_world_size, member=member, timeout=timeout,
            join_timeout=join_timeout, lease=lease, data_expiration=data_expiration,
            parameters_digest=parameters_digest, labels=labels, advertised_host=advertised_host,
            host_identity=host_identity, host_folder=host_folder, device=device,
            placement=placement,
            device_heap_bytes=device_heap_bytes, worker=worker, attached=attached))

    def _join(self, options: dict) -> None:
        self._own(_core.join_group(options), seconds(options['join_timeout'], 300))

    def _own(self, core, join_timeout: float) -> None:
        self._core = core
        self._run = core.run
        self._join_timeout = join_timeout
        _lifetime.close_at_exit(self)

    @classmethod
    def _of(cls, core, join_timeout: float = 300) -> 'Group':
        """Returns the object of a group that the extension module has joined."""
        group = cls.__new__(cls)
        group._own(core, join_timeout)
        return group

    # --- Facts.

    @property
    def placement(self) -> str:
        """Which arrays the collectives take: "host", "device" or "both"."""
        return self._core.place()[0]

    @property
    def device(self) -> str:
        """This rank's GPU, such as "cuda:1"; "cpu" if it has none."""
        return self._core.place()[1]

    @property
    def paths(self) -> List[str]:
        """By rank: "self", "shared memory" "tcp HOST:PORT" or "tls HOST:PORT"."""
        return self._core.paths()

    @property
    def hosts(self) -> List[str]:
        """By rank: the machine that the rank runs on."""
        return self._core.hosts()

    def stats(self) -> List[PeerStats]:
        """By rank: the payload exchanged since the generation began. Does not wait for calls."""
        return [PeerStats(*peer) for peer in self._core.stats()]

    # --- Memory.

    def empty(self, shape: Union[SupportsIndex, Sequence[int]], dtype: Any = 'float32',
              device: Any = None) -> Array:
        """Returns a contiguous array of undefined values, in memory that the other ranks of this
        host can map: collectives do not copy it.

        With a dtype of PyTorch the result is a tensor, else a numpy array; numpy has bfloat16
        and float8 with ml_dtypes alone. The memory lives as long as the array or a view of it.

        `device` is the group's: "cuda", its number, or None for the host. Without a dtype of
        PyTorch, the result is then an object with `__dlpack__`, for example for cupy.from_dlpack.
        Keep the array until the work on streams that uses it is done. Raises InvalidArgument if the
        group has no GPU, or another one.
        """
        try:
            shape = [operator.index(shape)]  # type: ignore[arg-type]  # also of numpy
        except TypeError:
            shape = list(shape)  # type: ignore[arg-type]
        return arrays.empty(self._core.allocate, shape, dtype, self._device_number(device))

    def _device_number(self, device: Any) -> Optional[int]:
        if str(device) != 'cuda':
            return arrays.device_number(device)
        if self.device == 'cpu':
            raise InvalidArgument(
                f'empty: device: rank {self.rank} has no GPU in group {self.name}; pass '
                'device="cuda" to cohort.Group, or None here for host memory')
        return arrays.device_number(self.device)

    # --- Between two ranks.

    @overload
    def send(self, array: Array, destination: int, *, timeout: Timeout = None,
             wait: Literal[True] = True) -> None: ...

    @overload
    def send(self, array: Array, destination: int, *, timeout: Timeout = None,
             wait: Literal[False]) -> PendingCall[None]: ...

    def send(self, array: Array, destination: int, *, timeout: Timeout = None,
             wait: bool = True) -> Any:
        """Sends to one rank. Messages from one rank to another arrive in the order sent. Blocks
        until the array may be used again, which for a large one is when the receiver has it.
        Source: MPI_Send, MPI_Isend."""
        return self._exchange(wait, 'send', [(True, destination, array)], None, timeout)

    @overload
    def receive(self, out: A, source: int, *, timeout: Timeout = None,
                wait: Literal[True] = True) -> A: ...

    @overload
    def receive(self, out: A, source: int, *, timeout: Timeout = None,
                wait: Literal[False]) -> PendingCall[A]: ...

    def receive(self, out: Array, source: int, *, timeout: Timeout = None,
                wait: bool = True) -> Any:
        """Receives from one rank into `out`, which has the type and the size of the sent array.
        Source: MPI_Recv, MPI_Irecv."""
        return self._exchange(wait, 'receive', [(False, source, out)], out, timeout)

    @overload
    def exchange(self, sends: Sequence[Tuple[Array, int]], receives: Sequence[Tuple[Array, int]], *,
                 timeout: Timeout = None, wait: Literal[True] = True) -> None: ...

    @overload
    def exchange(self, sends: Sequence[Tuple[Array, int]], receives: Sequence[Tuple[Array, int]], *,
                 timeout: Timeout = None, wait: Literal[False]) -> PendingCall[None]: ...

    def exchange(self, sends: Sequence[Tuple[Array, int]], receives: Sequence[Tuple[Array, int]],
                 *, timeout: Timeout = None, wait: bool = True) -> Any:
        """Several sends and receives, each an array and a rank; no one waits for another. Pending
        calls run one after the other, so two ranks that send to each other use one exchange."""
        return self._exchange(wait, 'exchange', [(True, peer, array) for array, peer in sends]
                              + [(False, peer, array) for array, peer in receives], None, timeout)

    def _exchange(self, wait: bool, name: str, transfers: List[Tuple[bool, int, Array]],
                  result: Optional[Array], timeout: Timeout) -> Any:
        if wait:
            self._core.exchange(transfers, timeout)
            return result
        return PendingCall(self._core.start_exchange(transfers, timeout), result, name)

    def await_message(self, peers: Sequence[int], *,
                      timeout: Timeout = None) -> Tuple[int, str, int]:
        """Waits for a message from one of `peers`. Returns its rank, type and number of elements.
        `timeout=0` polls: DeadlineExceeded leaves the group usable. Source: MPI_Probe."""
        return self._core.await_message(peers, timeout)

    # --- GPUs.

    def await_streams(self, *, timeout: Timeout = None) -> None:
        """Waits until this group's work on streams is done, and raises its error. After
        DeadlineExceeded the group stays usable."""
        self._core.await_streams(timeout)

    # --- The end, and the next beginning.

    def split(self, color: Union[int, str, None], key: int = 0, *, name: str = '',
              timeout: Timeout = 300) -> Optional['Group']:
        """Creates one group of the ranks that pass the same color, and returns this rank's; None,
        after the others have theirs, if its color is None.

            rows = group.split(group.rank // 4)          # 0..3, 4..7, ...
            first = group.split(0 if group.rank < 2 else None)

        All ranks of the group call it. Ranks of a new group are in the order of `key`, and those
        with the same key in the order of their ranks here. The ranks exchange color and key through
        the coordinator, and then call create_groups, whose errors it has. Each new group has
        generations and failures of its own. Blocks until all new groups are complete.

        Args:
          color: a number or a str; MPI_UNDEFINED is None.
          name: the beginning of the names of the groups.
          timeout: as in create_groups.

        Raises:
          InvalidArgument: the color or the key of a rank is of another type. All ranks get it, with
            the rank that it names, and the group stays usable.

        Source: MPI_Comm_split.
        """
        from cohort.layout import split_group  # pylint: disable=import-outside-toplevel  # a cycle
        return split_group(self, color, key, name, timeout)

    def rejoin(self, timeout: Timeout = 60) -> None:
        """Joins the next generation after Aborted or DeadlineExceeded, and waits until it is
        complete, at most `timeout` seconds (None: the join_timeout). Arrays from `empty` stay
        valid."""
        self._core.rejoin(seconds(timeout, self._join_timeout))

    def abort(self, reason: str) -> None:
        """Ends calls in flight on all ranks with Aborted. Any thread may call it."""
        self._core.abort(reason)

    def close(self) -> None:
        """Leaves the group. It may be called twice, and while other threads call the group: their
        calls end with an error. Asynchronous calls have a second to end; after that, and if another
        thread's call was running, all ranks get Aborted with this rank's name. Blocks for at most
        some seconds. Name, rank, size and generation stay readable."""
        self._keep_facts()
        self._core.release('')

    def _start_leaving(self, why: str) -> None:
        self._keep_facts()
        self._core.start_release(why)

    def __enter__(self) -> 'Group':
        return self

    def __exit__(self, kind, error, trace) -> None:
        # The other ranks may wait for calls that this rank will not make.
        self._keep_facts()
        self._core.release('' if error is None else f'{kind.__name__}: {error}')
