"""Engines that fetch the trainer's newest weights alone, without the other engines.

The ranks of such an engine and the trainer form a group for one transfer. The engine's first rank
asks for it by a value in a queue of the coordinator, and a thread of the trainer answers.
"""

import json
import logging
import threading
from typing import Any, Callable, Optional

import cohort
from cohort.vllm.update_decisions import UpdateDecisions
from cohort.vllm.weight_broadcast import NamedTensors, Receiver, Received, Sender

# How often the trainer's thread looks whether it should end.
_WAIT_SECONDS = 1
# How long it waits for the ranks of an engine, which join right after they asked.
_JOIN_SECONDS = 30


def _queue(name: str) -> str:
    return f'vllm/weights/{name}/late'


class LateEngines:
    """The trainer's thread that sends the newest weights to the engines that ask.

    Attributes:
      lock: held while weights are sent. Hold it while the sender copies new ones.
      sent: how many engines have fetched.
      failure: the error of the last engine that could not fetch; None if it could.
    """

    def __init__(self, sender: Sender, name: str, address: str, tenant: str, timeout: float):
        self.lock = threading.Lock()
        self.sent = 0
        self.failure: Optional[cohort.Error] = None
        self._sender, self._name, self._timeout = sender, name, timeout
        self._membership = {'address': address, 'tenant': tenant}
        self._store = cohort.Store(address, tenant=tenant)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True, name='cohort-late-engines')
        self._thread.start()

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                request = self._store.queue_pop(_queue(self._name), wait=_WAIT_SECONDS)
                if request is not None:
                    self._answer(json.loads(request))
                    self.sent += 1
                    self.failure = None
            except cohort.Error as error:
                self.failure = error
                # Without a coordinator each call fails at once.
                self._closing.wait(_WAIT_SECONDS)
            except Exception as error:  # pylint: disable=broad-exception-caught
                # Such as a request that is not one of `fetch`. The thread serves the next engine.
                self.failure = cohort.InvalidArgument(
                    f'a late engine of trainer {self._name}: {type(error).__name__}: {error}')
                logging.getLogger('cohort').warning('%s', self.failure)

    def _answer(self, request: dict) -> None:
        with cohort.Group(request['group'], rank=0, world_size=request['world_size'],
                          timeout=self._timeout, join_timeout=_JOIN_SECONDS,
                          **self._membership) as group, self.lock:
            self._sender.send(group)
            group.barrier()  # no rank leaves before all have the weights

    def close(self) -> None:
        """Ends the thread; waits for a transfer that it has begun."""
        self._closing.set()
        self._thread.join()
        self._store.close()


def fetch(name: str, engine: str, rank: int, ranks: int, address: str, tenant: str, timeout: float,
          load: Callable[[NamedTensors], Any], staging_bytes: Optional[int] = None) -> Received:
    """Fetches the newest weights of trainer `name`. All ranks of the engine call it.

    Args:
      engine: a name that no other engine has.
      rank, ranks: this rank of the engine, and how many it has.
      load: as for Receiver.receive.
      staging_bytes: as for Receiver.

    Raises:
      DeadlineExceeded: the trainer did not answer, or ranks of the engine did not call.
      Those of Receiver.receive.
    """
    group_name = f'vllm-weights-{name}-late-{engine}'
    with cohort.Store(address, tenant=tenant, timeout=timeout) as store:
        if rank == 0:
            store.queue_push(_queue(name), json.dumps(
                {'group': group_name, 'world_size': ranks + 1}), expiration=timeout)
        with cohort.Group(group_name, rank=rank + 1, world_size=ranks + 1, address=address,
                          tenant=tenant, timeout=timeout, join_timeout=timeout) as group:
            receiver = Receiver(UpdateDecisions(store, name).decide, staging_bytes)
            received = receiver.receive(group, load)
            group.barrier()
            return received
