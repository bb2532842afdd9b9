"""vLLM's StatelessProcessGroup on a coordinator.

    from cohort.vllm import StatelessProcessGroup
    group = StatelessProcessGroup.create(host, port, rank, world_size)

The methods are vLLM's. The differences are that senders do not overwrite each other's objects, that a
barrier leaves no keys behind, that errors name the missing ranks, and that nothing is unpickled:
objects are the values of `cohort.values`.

Objects, `send` and `recv` go through the coordinator. Barriers and the collectives on tensors go from
rank to rank: through shared memory, or between hosts over sockets.
"""

import contextlib
import copy
import os
import socket
import subprocess
import tempfile
import time
import weakref
from typing import Any, Callable, Iterator, List, Optional

from cohort import _lifetime
from cohort import _programs
from cohort import values
from cohort.errors import Aborted, DeadlineExceeded, Error, InvalidArgument, Unavailable
from cohort.group import Group
from cohort.process_group import ProcessGroup
from cohort.reduce_op import Op
from cohort.vllm.coordinator_tls import CoordinatorTls


class _OwnCoordinator:
    """A coordinator of this process, which ends with it."""

    def __init__(self, host: str, port: int, timeout: float, flags: List[str],
                 listen_socket: Optional[socket.socket] = None):
        """Waits until it serves. Raises Unavailable if it ends, because the port is taken for example,
        and DeadlineExceeded. It takes over `listen_socket`, which this process closes."""
        end = time.monotonic() + timeout
        self._address = _address(host, port)
        listen, inherited = self._address, ()
        if listen_socket is not None:
            if not listen_socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                listen_socket.listen(socket.SOMAXCONN)
            listen, inherited = f'fd://{listen_socket.fileno()}', (listen_socket.fileno(),)
        with tempfile.TemporaryDirectory(prefix='cohort') as folder:
            ready = os.path.join(folder, 'port')
            # The pipe closes when this process ends, however it ends.
            self._process = subprocess.Popen(
                [_programs.find('cohort-coordinator'), '--listen', listen,
                 '--metrics-listen', '', '--log-level', 'error', '--drain-grace', '2s', *flags,
                 '--until-stdin-closes', '--port-file', ready], stdin=subprocess.PIPE,
                pass_fds=inherited)
            _coordinators.add(self)
            # The coordinator's copy alone keeps the port, until it ends.
            if listen_socket is not None:
                listen_socket.close()
            _lifetime.close_at_exit(self)
            try:
                self._await(ready, end)
            except BaseException:
                self.close()
                raise

    def _await(self, ready: str, end: float) -> None:
        while not os.path.exists(ready):
            try:
                self._process.wait(0.002)
            except subprocess.TimeoutExpired:
                if time.monotonic() > end:
                    raise DeadlineExceeded(
                        f'the coordinator does not serve on {self._address} in time') from None
                continue
            raise Unavailable(f'the coordinator could not serve on {self._address}; its output says why')

    def let_go(self) -> None:
        """For a forked child: the coordinator ends with the parent, although the child lives."""
        self._process.stdin.close()

    def close(self) -> None:
        """Ends it, and waits for that: at most ten seconds."""
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_coordinators: 'weakref.WeakSet[_OwnCoordinator]' = weakref.WeakSet()


def _let_go_of_all() -> None:
    for coordinator in _lifetime.living(_coordinators):
        coordinator.let_go()


os.register_at_fork(after_in_child=_let_go_of_all)


def _address(host: str, port: int) -> str:
    return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'


@contextlib.contextmanager
def _own_advice() -> Iterator[None]:
    """Names the argument of `create` in an error about an object that only pickle can send."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace('pickle=True', 'allow_pickle=True'),
                              culprit=error.culprit, operation=error.operation) from None


class StatelessProcessGroup:
    """A group of processes that exchange objects and small tensors, without global state.

    Attributes:
      rank: this process's rank.
      world_size: how many ranks there are.
      data_expiration_seconds: when objects expire that were not read.
    """

    def __init__(self, group: ProcessGroup, tensors: Group, data_expiration_seconds: int,
                 allow_pickle: bool, closers: contextlib.ExitStack):
        self.rank = group.rank
        self.world_size = group.size
        self.data_expiration_seconds = data_expiration_seconds
        self._group = group
        self._tensors = tensors
        self._tensor_error: Optional[Error] = None  # why the group for tensors has ended
        self._allow_pickle = allow_pickle
        self._closers = closers

    @staticmethod
    def create(host: str, port: int, rank: int, world_size: int,
               data_expiration_seconds: int = 3600, store_timeout: int = 300,
               listen_socket: Optional[socket.socket] = None, *,
               address: Optional[str] = None, name: Optional[str] = None,
               allow_pickle: bool = False) -> 'StatelessProcessGroup':
        """Joins the group and waits until all ranks are there, at most `store_timeout` seconds.

        Rank 0 starts a coordinator on host:port, which ends with that process. Like vLLM's store, it
        takes calls from every host that can reach the port. Raises Unavailable if the port is taken, or
        a rank could not be connected; DeadlineExceeded lists the ranks that did not come.

        With COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY and COHORT_TLS_CA on all ranks, that coordinator
        serves TLS with those files of rank 0, and takes only ranks with a certificate. Raises
        FailedPrecondition if some of the three are missing, or if the certificates do not fit each
        other or the host.

        Args:
          listen_socket: a TCP socket of rank 0, bound to the port. The coordinator takes it over with the
            connections that wait in its queue, and this process closes its copy. It may be bound to
            another address than `host`, such as 0.0.0.0.
          address: a coordinator that runs elsewhere, as for ProcessGroup; host and port are then
            only a part of the group's name.
          name: the group's name; None: made of the port, and of the host if there is an address.
          allow_pickle: objects of other types are pickled. A program that can reach the coordinator
            can then run code in this process: only for networks that you trust.
        """
        end = time.monotonic() + store_timeout
        name = name or (f'stateless-{port}' if address is None else
                        f'stateless-{host.replace(":", "-")}-{port}')
        closers = contextlib.ExitStack()
        with closers:
            if address is None:
                address = _address(host, port)
                tls = CoordinatorTls(f'group {name}, rank {rank}', host, port)
                if rank == 0:
                    own = _OwnCoordinator(host, port, store_timeout, tls.flags, listen_socket)
                    closers.callback(own.close)
                tls.verify(end)
            group = ProcessGroup(name, rank=rank, world_size=world_size, address=address,
                                 timeout=store_timeout, join_timeout=store_timeout,
                                 data_expiration=data_expiration_seconds)
            closers.callback(group.close)
            tensors = Group(f'{name}-tensors', rank=rank, world_size=world_size, address=address,
                            timeout=store_timeout,
                            join_timeout=max(0.001, end - time.monotonic()))
            closers.callback(tensors.close)
            return StatelessProcessGroup(group, tensors, data_expiration_seconds, allow_pickle,
                                         closers.pop_all())

    def _encode(self, obj: Any) -> bytes:
        return values.encode(obj, allow_pickle=self._allow_pickle)

    def _decode(self, data: bytes) -> Any:
        return values.decode(data, allow_pickle=self._allow_pickle)

    def send_obj(self, obj: Any, dst: int) -> None:
        """Sends an object to a rank; does not wait for it."""
        self._group.send(self._encode(obj), dst)

    def recv_obj(self, src: int) -> Any:
        """Returns the next object of a rank."""
        return self._decode(self._group.receive(src))

    def broadcast_obj(self, obj: Optional[Any], src: int) -> Any:
        """Returns the object of rank `src` on every rank. An object that cannot be sent is
        InvalidArgument on all ranks."""
        with _own_advice():
            received = self._group.broadcast(obj, src, pickle=self._allow_pickle)
        return obj if self.rank == src else received

    def all_gather_obj(self, obj: Any) -> List[Any]:
        """Returns the objects of all ranks, by rank. An object that cannot be sent is InvalidArgument
        on all ranks."""
        with _own_advice():
            objs = self._group.all_gather(obj, pickle=self._allow_pickle)
        objs[self.rank] = obj
        return objs

    def barrier(self, timeout: float = 30.0) -> None:
        """Waits for all ranks. If one does not come in time, a rank raises DeadlineExceeded, whose
        `missing` has the ranks that did not come, and all others, late ones included, raise Aborted;
        both are a RuntimeError. Later barriers go through the coordinator and may succeed; collectives
        on tensors raise that error from then on."""
        if self._tensor_error is None:
            self._with_tensors(lambda group: group.barrier(timeout=timeout))
        else:
            self._group.barrier(timeout=timeout)

    def expire_data(self) -> None:
        """Frees objects older than data_expiration_seconds. The coordinator also does that by
        itself."""
        self._group.expire_data(self.data_expiration_seconds)

    # --- Tensors on the CPU.

    def _with_tensors(self, call: Callable[[Group], Any]) -> Any:
        """Returns call(the group for tensors). After an error that ended that group, raises it."""
        if self._tensor_error is not None:
            raise copy.copy(self._tensor_error)
        try:
            return call(self._tensors)
        except InvalidArgument:
            raise
        except BaseException as error:
            # Another exception is a signal's, which has aborted the call on all ranks.
            self._tensor_error = (error if isinstance(error, Error) else
                                  Aborted(f'rank {self.rank} was interrupted: {error!r}'))
            self._tensors.close()
            raise

    def send(self, tensor: Any, dst: int) -> None:
        """Sends a tensor to a rank; does not wait for it."""
        self.send_obj(tensor, dst)

    def recv(self, tensor: Any, src: int) -> Any:
        """Receives a tensor of the same shape into `tensor`, and returns it."""
        received = self.recv_obj(src)
        if received.shape != tensor.shape:
            raise ValueError(f'rank {src} sent a tensor of shape {tuple(received.shape)}, expected '
                             f'{tuple(tensor.shape)}')
        tensor[...] = received
        return tensor

    def broadcast(self, tensor: Any, src: int) -> Any:
        """Every rank's tensor gets the elements of rank `src`'s. Returns the tensor."""
        return self._with_tensors(lambda group: group.broadcast(tensor, src))

    def all_reduce(self, tensor: Any, op: Op = 'sum') -> Any:
        """Returns the reduction of all tensors, in a new tensor."""
        return self._with_tensors(lambda group: group.all_reduce(tensor, op=op))

    def gather(self, tensor: Any, dst: int) -> Optional[List[Any]]:
        """Returns all tensors at rank `dst`, by rank, and None elsewhere."""
        gathered = self._with_tensors(lambda group: group.gather(tensor[None], dst))
        return None if gathered is None else list(gathered)

    def close(self) -> None:
        """Leaves the group, and ends this process's coordinator."""
        self._closers.close()
