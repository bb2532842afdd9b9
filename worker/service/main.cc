// cohort-worker.
#include "worker/group/open_shared_gpu.h"
#include "worker/service/run_worker.h"

int main(int argc, char** argv) {
  return cohort::worker::RunWorker(argc, argv, cohort::worker::OpenGpuOfWorker);
}
