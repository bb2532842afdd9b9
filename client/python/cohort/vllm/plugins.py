"""The functions that vLLM calls in each of its processes, by their entry points in the wheel."""

import os
from typing import Optional

_NAME = 'cohort'


def _is_named() -> bool:
    """Whether VLLM_PLUGINS names the plug-in. vLLM loads all plug-ins if that is not set."""
    return _NAME in os.environ.get('VLLM_PLUGINS', '').split(',')


def platform() -> Optional[str]:
    """The class of the platform, for `vllm.platform_plugins`. None: vLLM keeps its own platform."""
    if not _is_named():
        return None
    import torch  # pylint: disable=import-outside-toplevel
    if torch.version.cuda or torch.version.hip:
        return None
    return 'cohort.vllm.platform.CohortCpuPlatform'


def register() -> None:
    """Registers the weight transfer backend, for `vllm.general_plugins`. It may be called twice."""
    if not _is_named():
        return
    # pylint: disable-next=import-outside-toplevel
    from vllm.distributed.weight_transfer import factory
    for registry, name in ((factory.WeightTransferEngineFactory, 'WeightReceiver'),
                           (factory.WeightTransferTrainerFactory, 'WeightSender')):
        try:
            registry.register_engine(_NAME, 'cohort.vllm.weight_transfer', name)
        except ValueError:
            pass  # it is registered already
