"""vLLM over Cohort.

    VLLM_PLUGINS=cohort COHORT_ADDRESS=coordinator:7700 vllm serve MODEL --tensor-parallel-size 2

vLLM finds the plug-in in the installed wheel and loads it in each of its processes, because
VLLM_PLUGINS names it. The plug-in brings:

- the platform `cohort.vllm.platform.CohortCpuPlatform`, for builds of vLLM for the CPU: the device
  groups have the backend "cohort" of torch.distributed, and the communicator calls their groups;
- the weight transfer backend "cohort": `cohort.vllm.weight_transfer`.

Without VLLM_PLUGINS, the installed wheel changes nothing in vLLM. `StatelessProcessGroup` needs no
vLLM; the other modules import it.
"""

from cohort.vllm.stateless_process_group import StatelessProcessGroup

__all__ = ['StatelessProcessGroup']
