// SIGINT and SIGTERM as something that can be waited for beside other descriptors.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_STOP_SIGNAL_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_STOP_SIGNAL_H_

namespace cohort::benchmark {

// From now on these signals do not end the process.
void CatchStopSignals();

// Readable once one has come; stays so.
int StopDescriptor();

// The first that has come, or 0.
int StopSignal();

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_STOP_SIGNAL_H_
