"""vLLM's platform for the CPU, with groups of Cohort as its device groups."""

from vllm.platforms.cpu import CpuPlatform

import cohort.torch  # noqa: F401  registers the backend


class CohortCpuPlatform(CpuPlatform):
    """The CPU, whose tensor, pipeline, data and expert groups communicate over Cohort.

    The environment variable COHORT_ADDRESS is the coordinator. vLLM makes one more group of gloo
    beside each device group, for its own objects; no plug-in can choose the backend of that group.
    """
    dist_backend: str = 'cohort'

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        """The name of the class that does the collectives of the model's layers."""
        return 'cohort.vllm.communicator.Communicator'

    @classmethod
    def use_custom_op_collectives(cls) -> bool:
        """Collectives are operators, which torch.compile does not look into."""
        return True
