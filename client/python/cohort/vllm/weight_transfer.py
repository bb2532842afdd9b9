"""vLLM's weight transfer by Cohort: `WeightTransferConfig(backend="cohort")`.

The trainer, in its own process:

    from cohort.vllm.weight_transfer import TrainerOptions, WeightSender
    sender = WeightTransferTrainerFactory.trainer_init(
        TrainerOptions(name="job-17", address="coordinator:7700", engine_ranks=2, rank=0),
        client=client, source=ModuleSource(model))
    sender.send_weights()              # after each step: all engine ranks have the weights

An engine that starts later fetches the newest weights alone, whenever it wants:

    llm.init_weight_transfer_engine({"init_info": {
        "name": "job-17", "address": "coordinator:7700", "engine": "engine-2"}})
    llm.start_weight_update()
    llm.update_weights({"update_info": {}})
    llm.finish_weight_update()
"""

import contextlib
import dataclasses
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Callable, ClassVar, Iterator, Optional

import torch
from vllm.distributed.weight_transfer.base import (
    TrainerInitInfo, TrainerWeightTransferEngine, WeightTransferEngine, WeightTransferInitInfo,
    WeightTransferUpdateInfo)

import cohort
from cohort.vllm.late_engines import LateEngines, fetch
from cohort.vllm.update_decisions import UpdateDecisions
from cohort.vllm.weight_broadcast import NamedTensors, Received, Receiver, Sender


@dataclasses.dataclass(kw_only=True)
class EngineOptions(WeightTransferInitInfo):
    """The options of an engine's ranks, which they get once.

    Attributes:
      name: of the trainer.
      address, tenant: of the coordinator.
      world_size: the trainer and all engine ranks that receive together; 0: the engine is late.
      engine: the name of a late engine, which no other engine has.
      timeout: limits each call, in seconds.
      staging_bytes: each rank holds an update of at most so many bytes in host memory before it loads
        it. It loads a larger one while it arrives, so that an error leaves the model unusable until
        the next update. None: no limit.
    """
    name: str
    address: str = '127.0.0.1:7700'
    tenant: str = ''
    world_size: int = 0
    engine: str = ''
    timeout: float = 300
    staging_bytes: Optional[int] = None

    def __post_init__(self) -> None:
        if bool(self.world_size) == bool(self.engine):
            raise ValueError(f'weight transfer from {self.name}: expected either world_size or the '
                             f'name of a late engine, got world_size={self.world_size} and '
                             f'engine={self.engine!r}')


@dataclasses.dataclass
class UpdateOptions(WeightTransferUpdateInfo):
    """The options of one update. There are no such options."""


class WeightReceiver(WeightTransferEngine[EngineOptions, UpdateOptions]):
    """The part of a weight transfer in a worker of vLLM.

    Attributes:
      received: the last update; None before the first one.
    """
    init_info_cls = EngineOptions
    update_info_cls = UpdateOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.received: Optional[Received] = None
        self._options: Optional[EngineOptions] = None
        self._group: Optional[cohort.Group] = None
        self._store: Optional[cohort.Store] = None
        self._receiver: Optional[Receiver] = None
        parallel = self.parallel_config
        self._rank = parallel.data_parallel_index * parallel.world_size + parallel.rank
        self._ranks = parallel.data_parallel_size * parallel.world_size

    def init_transfer_engine(self, init_info: EngineOptions) -> None:
        """Joins the group of the trainer, which joins it as well. A late engine joins none yet."""
        self.shutdown()
        self._options = init_info
        if init_info.world_size:
            self._group = self._join(init_info)
            self._store = self._connect(init_info)
            self._receiver = Receiver(
                None if self._store is None else UpdateDecisions(self._store, init_info.name).decide,
                init_info.staging_bytes)

    def _connect(self, options: EngineOptions) -> Optional[cohort.Store]:
        return cohort.Store(options.address, tenant=options.tenant, timeout=options.timeout)

    def _join(self, options: EngineOptions) -> Any:
        return cohort.Group(
            f'vllm-weights-{options.name}', rank=self._rank + 1, world_size=options.world_size,
            address=options.address, tenant=options.tenant, timeout=options.timeout,
            join_timeout=options.timeout)

    def start_weight_update(self) -> None:
        """Does nothing: the model serves until `update_weights` has received all weights."""

    def finish_weight_update(self) -> None:
        """Does nothing: the layers are complete after `update_weights`."""

    @contextlib.contextmanager
    def _reload(self) -> Iterator[Callable[[NamedTensors], Any]]:
        """Yields a function that loads tensors in the form of a checkpoint. Its first call prepares
        the model's layers, and the end of the context completes them."""
        # pylint: disable-next=import-outside-toplevel
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload, initialize_layerwise_reload)
        begun = False

        def load(tensors: NamedTensors) -> None:
            nonlocal begun
            if not begun:
                begun = True
                initialize_layerwise_reload(self.model)
            self.model.load_weights(tensors)
        try:
            yield load
        finally:
            if begun:
                finalize_layerwise_reload(self.model, self.model_config)

    def update_weights(self, update_info: dict) -> None:
        """Receives all weights. As the base class, but without a GPU it does not wait for one."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateOptions) -> None:
        """Receives one version from the trainer; a late engine fetches the newest. All ranks load it,
        or none does: see Receiver.receive, which has the errors."""
        options = self._options
        if options is None:
            raise cohort.FailedPrecondition(
                'weight transfer: call init_weight_transfer_engine before update_weights')
        with self._reload() as load:
            if self._group is not None and self._receiver is not None:
                self.received = self._receiver.receive(self._group, load)
            else:
                self.received = fetch(options.name, options.engine, self._rank, self._ranks,
                                      options.address, options.tenant, options.timeout, load,
                                      options.staging_bytes)

    def shutdown(self) -> None:
        """Leaves the trainer's group."""
        if self._group is not None:
            self._group.close()
            self._group = self._receiver = None
        if self._store is not None:
            self._store.close()
            self._store = None


@dataclasses.dataclass
class TrainerOptions(TrainerInitInfo):
    """The options of the trainer.

    Attributes:
      name: of the trainer: engines fetch by it.
      engine_ranks: how many ranks the engines of the client have in all.
      address, tenant: of the coordinator.
      part_bytes: the weights travel in parts of this size.
      checksums: engines verify each tensor by CRC-32.
      timeout: limits each call, in seconds.
      staging_bytes: as in EngineOptions, for the engines of the client.
    """
    backend: ClassVar[str] = 'cohort'
    name: str
    engine_ranks: int
    address: str = '127.0.0.1:7700'
    tenant: str = ''
    part_bytes: int = 64 << 20
    checksums: bool = True
    timeout: float = 300
    staging_bytes: Optional[int] = None


class WeightSender(TrainerWeightTransferEngine[TrainerOptions]):
    """The trainer's part. Rank 0 of the trainer sends; its other ranks iterate the source, because
    that may be a collective of theirs.

    Attributes:
      late_engines: the thread that serves engines that fetch alone; None on other ranks.
    """
    init_info_cls = TrainerOptions

    def __init__(self, options: TrainerOptions, client: Any, source: Any):
        super().__init__(client=client, source=source, is_sender=options.is_sender)
        self.late_engines: Optional[LateEngines] = None
        self._options = options
        self._version = 0
        self._group: Any = None
        self._sender: Optional[Sender] = None

    @classmethod
    def trainer_init(cls, init_info: TrainerOptions, *, client: Any, source: Any = None
                     ) -> 'WeightSender':
        """Joins the group of the engines' ranks, and tells these to join it."""
        if source is None:
            raise ValueError(f'weight transfer {init_info.name}: expected a WeightSource, got None')
        sender = cls(init_info, client, source)
        if sender.is_sender:
            sender._join()
        return sender

    def _join(self) -> None:
        options = self._options
        told = {'name': options.name, 'address': options.address, 'tenant': options.tenant,
                'world_size': options.engine_ranks + 1, 'timeout': options.timeout,
                'staging_bytes': options.staging_bytes}
        self._group = self._with_client(lambda: self.client.init_weight_transfer_engine(told),
                                        self._join_group)
        self._sender = Sender(self._group, options.part_bytes, options.checksums)
        self.late_engines = LateEngines(self._sender, options.name, options.address, options.tenant,
                                        options.timeout)

    def _join_group(self) -> Any:
        options = self._options
        return cohort.Group(
            f'vllm-weights-{options.name}', rank=0, world_size=options.engine_ranks + 1,
            address=options.address, tenant=options.tenant, timeout=options.timeout,
            join_timeout=options.timeout)

    def _with_client(self, request: Any, call: Any) -> Any:
        """Returns call(), while another thread waits for `request` to the engines. An error of the
        engines is the cause of an error here. Raises DeadlineExceeded if they do not answer."""
        executor = ThreadPoolExecutor(max_workers=1)
        try:
            answer = executor.submit(request)
            try:
                result = call()
            except cohort.Error as error:
                if answer.done() and answer.exception() is not None:
                    raise error from answer.exception()
                raise
            if not wait([answer], self._options.timeout).done:
                raise cohort.DeadlineExceeded(
                    f'weight transfer {self._options.name}: the engines did not answer within '
                    f'{self._options.timeout:g} s')
            answer.result()
            return result
        finally:
            executor.shutdown(wait=False)

    def send_weights(self, version: Optional[str] = None) -> None:
        """Copies the weights of the source, and sends them to all engines' ranks, which load them.
        `version` is for errors and for the engines' reports; None: the number of the call."""
        self._version += 1
        if self._sender is None or self.late_engines is None:
            for _ in self.source:
                pass
            return
        sender, group = self._sender, self._group
        with self.late_engines.lock:
            sender.copy(str(self._version) if version is None else version, self.source)
        self.client.start_weight_update()
        self._with_client(lambda: self.client.update_weights({}), lambda: sender.send(group))
        self.client.finish_weight_update()

    def close(self) -> None:
        """Leaves the engines' group, and serves late engines no longer."""
        if self.late_engines is not None:
            self.late_engines.close()
        if self._group is not None:
            self._group.close()
