// SIGINT and SIGTERM as a descriptor that a poll can wait for.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_STOP_SIGNAL_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_STOP_SIGNAL_H_

namespace cohort::benchmark {

// From now on these signals do not end the process.
void CatchStopSignals();

// Readable once a signal has come; stays so.
int StopDescriptor();

// The first signal that has come, or 0.
int StopSignal();

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_STOP_SIGNAL_H_
