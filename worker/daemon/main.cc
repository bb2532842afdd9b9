// cohort-worker.
#include "worker/daemon/run_worker.h"

int main(int argc, char** argv) { return cohort::worker::RunWorker(argc, argv); }
