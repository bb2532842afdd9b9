// cohort-worker.
#include "worker/daemon/run_worker.h"
#include "worker/group/shared_gpu/open_shared_gpu.h"

int main(int argc, char** argv) {
  return cohort::worker::RunWorker(argc, argv, cohort::worker::OpenGpuOfWorker);
}
