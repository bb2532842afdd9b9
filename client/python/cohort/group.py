"""Collectives and messages between processes that are the ranks of a group."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from cohort import _core
from cohort import _lifetime
from cohort import arrays
from cohort.arrays import Array, new_like
from cohort.pending_call import PendingCall
from cohort.process_group import BytesLike, membership_options
from cohort.reduce_op import Op
from cohort.tensor_maps import TensorMaps

# The numbers of the collectives in the C++ library.
_ALL_REDUCE, _REDUCE, _BROADCAST, _ALL_GATHER, _REDUCE_SCATTER = 1, 2, 3, 4, 5
_ALL_TO_ALL, _GATHER, _SCATTER = 6, 7, 8
_ALL_GATHER_V, _REDUCE_SCATTER_V, _GATHER_V, _ALL_TO_ALL_V = 9, 10, 11, 12
# For collectives that do not reduce.
_NO_OP = 1


class PeerStats(NamedTuple):
    """The payload exchanged with one rank since the generation began."""
    bytes_sent: int
    messages_sent: int
    bytes_received: int
    messages_received: int


class Group(TensorMaps):
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
    started: a blocking call waits for those that are pending. One thread calls a group; threads that
    call it in different orders on different ranks mix the values of equal calls.

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

    def __init__(self, group: str, *, world_size: int, rank: Optional[int] = None,
                 address: Optional[str] = None, tenant: str = '', min_world_size: int = 0,
                 member: str = '', timeout: float = 300, join_timeout: float = 300,
                 lease: float = 30, data_expiration: float = 3600, parameters_digest: str = '',
                 labels: Optional[Dict[str, str]] = None, advertised_host: str = '',
                 host_identity: str = '', device: Any = None, placement: Optional[str] = None,
                 device_heap_bytes: int = 0, worker: Optional[str] = None, attached: bool = False):
        """Joins, waits until the group is complete, and connects the ranks.

        Args:
          address: the coordinator. None: 127.0.0.1:7700, or with `worker` the worker's.
          advertised_host: the address to which ranks on other hosts connect, without a port. Empty:
            the local address towards the coordinator.
          host_identity: ranks with different names share no memory. Empty: this machine.
          device: this rank's GPU: its number in CUDA, "cuda:1", or torch.device("cuda", 1).
          placement: which arrays the collectives take, the same on all ranks: "host", "device" or
            "both". None: "both" with `device`, else "host".
          device_heap_bytes: the bytes of GPU memory that is registered with NCCL. `empty` uses it
            while there is room. In a collective, either all ranks' arrays lie in it, or none.
          worker: the address of a worker daemon that has this rank: "host:port" or "unix:/path". It
            runs the collectives. The options min_world_size, labels, advertised_host and
            host_identity are then the daemon's.
          attached: this process runs the collectives itself, in memory of the worker on this host;
            the worker keeps the membership and watches this process.
          The others: as ProcessGroup.

        Raises:
          Those of ProcessGroup; Unavailable or DeadlineExceeded name a rank or a worker that could
          not be connected. With `device`: FailedPrecondition (no GPU, no driver, or NCCL too old),
          NotFound (no NCCL; lists the paths that were tried), InvalidArgument (no such GPU).
        """
        if address is None:
            address = '' if worker else '127.0.0.1:7700'
        options = membership_options(
            group, world_size=world_size, rank=rank, address=address, tenant=tenant,
            min_world_size=min_world_size, member=member, timeout=timeout,
            join_timeout=join_timeout, lease=lease, data_expiration=data_expiration,
            parameters_digest=parameters_digest, labels=labels)
        number = arrays.device_number(device)
        options.update(
            advertised_host=advertised_host, host_identity=host_identity, device=number,
            placement=placement, device_heap_bytes=device_heap_bytes, worker=worker,
            attached=attached, nccl_library='' if number is None else arrays.nccl_library())
        self._own(_core.join_group(options))

    def _own(self, core) -> None:
        self._core = core
        self._run = core.run
        _lifetime.close_at_exit(self)

    @classmethod
    def _of(cls, core) -> 'Group':
        """Returns the object of a group that the extension module has joined."""
        group = cls.__new__(cls)
        group._own(core)
        return group

    # --- Facts.

    @property
    def name(self) -> str:
        """The group's name."""
        return self._core.facts()[0]

    @property
    def rank(self) -> int:
        """This process's rank, 0..size-1."""
        return self._core.facts()[1]

    @property
    def size(self) -> int:
        """How many ranks the generation has."""
        return self._core.facts()[2]

    @property
    def generation(self) -> int:
        """The number of the generation."""
        return self._core.facts()[3]

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

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = 'float32',
              device: Any = None) -> Array:
        """Returns a contiguous array of undefined values, in memory that the other ranks of this
        host can map: collectives do not copy it.

        With a dtype of PyTorch the result is a tensor, else a numpy array; numpy has no bfloat16
        and no float8. The memory lives as long as the array or a view of it.

        `device` is the group's: "cuda", its number, or None for the host. Without a dtype of
        PyTorch, the result is then an object with `__dlpack__`, for example for cupy.from_dlpack.
        Keep the array until the work on streams that uses it is done.
        """
        shape = [shape] if isinstance(shape, int) else list(shape)
        return arrays.empty(self._core.allocate, shape, dtype,
                            arrays.device_number(self.device if device == 'cuda' else device))

    # --- Collectives. Every rank has a part of the same size.

    def _call(self, wait: bool, number: int, source: Optional[Array], out: Optional[Array], op: Any,
              dim: int, root: int, timeout: Optional[float]) -> Any:
        if wait:
            self._run(number, source, out, op, dim, root, timeout)
            return out
        return PendingCall(self._core.start(number, source, out, op, dim, root, timeout), out)

    def all_reduce(self, array: Array, out: Optional[Array] = None, *, op: Op = 'sum',
                   timeout: Optional[float] = None, wait: bool = True) -> Any:
        """out = the reduction of all ranks' arrays, of the same shape. In place: out is array.
        Source: MPI_Allreduce, ncclAllReduce."""
        if out is None:
            out = new_like(array)
        return self._call(wait, _ALL_REDUCE, array, out, op, -1, -1, timeout)

    def all_reduce_coalesced(self, inputs: Sequence[Array], out: Optional[Sequence[Array]] = None,
                             *, op: Op = 'sum', timeout: Optional[float] = None) -> Sequence[Array]:
        """all_reduce of several arrays of one type, in one step. Source: all_reduce_coalesced of
        torch.distributed."""
        if out is None:
            out = [new_like(array) for array in inputs]
        self._core.all_reduce_coalesced(inputs, out, op, timeout)
        return out

    def reduce(self, array: Array, root: int, out: Optional[Array] = None, *, op: Op = 'sum',
               timeout: Optional[float] = None, wait: bool = True) -> Any:
        """Like all_reduce, at the root; the other ranks get None."""
        is_root = self.rank == root
        if is_root and out is None:
            out = new_like(array)
        return self._call(wait, _REDUCE, array, out if is_root else None, op, -1, root,
                          timeout)

    def broadcast(self, array: Array, root: int, *, timeout: Optional[float] = None,
                  wait: bool = True) -> Any:
        """Every rank's array gets the elements of the root's. Returns the array."""
        return self._call(wait, _BROADCAST, None, array, _NO_OP, -1, root, timeout)

    def all_gather(self, array: Array, out: Optional[Array] = None, *, dim: int = 0,
                   timeout: Optional[float] = None, wait: bool = True) -> Any:
        """out = all ranks' arrays concatenated along `dim`, by rank. Source: MPI_Allgather."""
        if out is None:
            out = new_like(array, dim, lambda extent: extent * self.size)
        return self._call(wait, _ALL_GATHER, array, out, _NO_OP, dim, -1, timeout)

    def reduce_scatter(self, array: Array, out: Optional[Array] = None, *, op: Op = 'sum',
                       dim: int = 0, timeout: Optional[float] = None, wait: bool = True) -> Any:
        """out = this rank's part along `dim` of the reduction of all arrays, whose extent there is
        a multiple of size. Source: MPI_Reduce_scatter_block."""
        if out is None:
            out = new_like(array, dim, lambda extent: extent // self.size)
        return self._call(wait, _REDUCE_SCATTER, array, out, op, dim, -1, timeout)

    def all_to_all(self, array: Array, out: Optional[Array] = None, *,
                   timeout: Optional[float] = None, wait: bool = True) -> Any:
        """Part r of out along dimension 0 = part `rank` of rank r's array. Not in place. Source:
        MPI_Alltoall."""
        if out is None:
            out = new_like(array)
        return self._call(wait, _ALL_TO_ALL, array, out, _NO_OP, 0, -1, timeout)

    def gather(self, array: Array, root: int, out: Optional[Array] = None, *, dim: int = 0,
               timeout: Optional[float] = None, wait: bool = True) -> Any:
        """Like all_gather, at the root; the other ranks get None."""
        is_root = self.rank == root
        if is_root and out is None:
            out = new_like(array, dim, lambda extent: extent * self.size)
        return self._call(wait, _GATHER, array, out if is_root else None, _NO_OP, dim, root, timeout)

    def scatter(self, array: Optional[Array], root: int, out: Array, *, dim: int = 0,
                timeout: Optional[float] = None, wait: bool = True) -> Any:
        """out = part `rank` along `dim` of the root's array; other ranks pass None as `array`."""
        source = array if self.rank == root else None
        return self._call(wait, _SCATTER, source, out, _NO_OP, dim, root, timeout)

    # --- Ragged: parts of different sizes along `dim`. All ranks pass the same `sizes`, by rank.

    def all_gather_v(self, array: Array, sizes: Sequence[int], out: Optional[Array] = None, *,
                     dim: int = 0, timeout: Optional[float] = None) -> Array:
        """Like all_gather; array's extent along `dim` is sizes[rank]."""
        if out is None:
            out = new_like(array, dim, lambda _: sum(sizes))
        self._core.run_ragged(_ALL_GATHER_V, array, out, _NO_OP, dim, -1, (sizes,), timeout)
        return out

    def reduce_scatter_v(self, array: Array, sizes: Sequence[int], out: Optional[Array] = None, *,
                         op: Op = 'sum', dim: int = 0, timeout: Optional[float] = None) -> Array:
        """Like reduce_scatter; out's extent along `dim` is sizes[rank]."""
        if out is None:
            out = new_like(array, dim, lambda _: sizes[self.rank])
        self._core.run_ragged(_REDUCE_SCATTER_V, array, out, op, dim, -1, (sizes,), timeout)
        return out

    def gather_v(self, array: Array, sizes: Sequence[int], root: int,
                 out: Optional[Array] = None, *, dim: int = 0,
                 timeout: Optional[float] = None) -> Optional[Array]:
        """Like all_gather_v, at the root; the other ranks get None."""
        if self.rank != root:
            out = None
        elif out is None:
            out = new_like(array, dim, lambda _: sum(sizes))
        self._core.run_ragged(_GATHER_V, array, out, _NO_OP, dim, root, (sizes,), timeout)
        return out

    def all_to_all_v(self, array: Array, input_sizes: Sequence[int], output_sizes: Sequence[int],
                     out: Optional[Array] = None, *, timeout: Optional[float] = None) -> Array:
        """Sends input_sizes[r] elements along dimension 0 to rank r, and receives output_sizes[r]
        from it. If rank r sends another number, all ranks raise InvalidArgument."""
        if out is None:
            out = new_like(array, 0, lambda _: sum(output_sizes))
        self._core.run_ragged(_ALL_TO_ALL_V, array, out, _NO_OP, 0, -1,
                              (input_sizes, output_sizes), timeout)
        return out

    def exchange_sizes(self, own: int, *, timeout: Optional[float] = None) -> List[int]:
        """Returns every rank's `own`, by rank: the sizes for a ragged collective."""
        return self._core.exchange_sizes(own, timeout)

    def barrier(self, *, timeout: Optional[float] = None) -> None:
        """Blocks until all ranks have called it, in order with the other collectives."""
        self._core.barrier(timeout)

    # --- Between two ranks.

    def send(self, array: Array, destination: int, *, timeout: Optional[float] = None) -> None:
        """Sends to one rank. Messages from one rank to another arrive in the order sent."""
        self._core.exchange([(True, destination, array)], timeout)

    def receive(self, out: Array, source: int, *, timeout: Optional[float] = None) -> Array:
        """Receives from one rank into `out`, which has the type and the size of the sent array."""
        self._core.exchange([(False, source, out)], timeout)
        return out

    def exchange(self, sends: Sequence[Tuple[Array, int]], receives: Sequence[Tuple[Array, int]],
                 *, timeout: Optional[float] = None) -> None:
        """Several sends and receives, each an array and a rank; no one waits for another."""
        self._core.exchange([(True, peer, array) for array, peer in sends]
                            + [(False, peer, array) for array, peer in receives], timeout)

    def await_message(self, peers: Sequence[int], *,
                      timeout: Optional[float] = None) -> Tuple[int, str, int]:
        """Waits for a message from one of `peers`. Returns its rank, type and number of elements.
        `timeout=0` polls: DeadlineExceeded leaves the group usable. Source: MPI_Probe."""
        return self._core.await_message(peers, timeout)

    # --- GPUs.

    def await_streams(self, *, timeout: Optional[float] = None) -> None:
        """Waits until this group's work on streams is done, and raises its error. After
        DeadlineExceeded the group stays usable."""
        self._core.await_streams(timeout)

    # --- Objects, through the coordinator. They are not ordered with collectives.

    def send_object(self, obj: BytesLike, destination: int, *,
                    timeout: Optional[float] = None) -> None:
        """Sends bytes to one rank; does not wait for it."""
        self._core.send_object(obj, destination, timeout)

    def receive_object(self, source: int, *, timeout: Optional[float] = None) -> bytes:
        """Returns the next object of one rank."""
        return self._core.receive_object(source, timeout)

    def broadcast_object(self, obj: Optional[BytesLike], root: int, *,
                         timeout: Optional[float] = None) -> bytes:
        """Returns the root's object on every rank; other ranks' `obj` is ignored."""
        return self._core.broadcast_object(obj or b'', root, timeout)

    def all_gather_objects(self, obj: BytesLike, *,
                           timeout: Optional[float] = None) -> List[bytes]:
        """Returns the objects of all ranks, by rank."""
        return self._core.all_gather_objects(obj, timeout)

    # --- The end, and the next beginning.

    def rejoin(self, timeout: float = 60) -> None:
        """Joins the next generation after Aborted or DeadlineExceeded, and waits until it is
        complete. Arrays from `empty` stay valid."""
        self._core.rejoin(timeout)

    def abort(self, reason: str) -> None:
        """Ends calls in flight on all ranks with Aborted. Any thread may call it."""
        self._core.abort(reason)

    def close(self) -> None:
        """Leaves the group. It may be called twice, and while other threads call the group: their
        calls end with an error. Asynchronous calls have a second to end; after that, and if another
        thread's call was running, all ranks get Aborted with this rank's name. Blocks for at most
        some seconds."""
        self._core.release('')

    def _start_leaving(self, why: str) -> None:
        self._core.start_release(why)

    def __enter__(self) -> 'Group':
        return self

    def __exit__(self, kind, error, trace) -> None:
        # The other ranks may wait for calls that this rank will not make.
        self._core.release('' if error is None else f'{kind.__name__}: {error}')
