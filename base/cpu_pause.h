// The processor's hint that a loop spins.
#ifndef COHORT_BASE_CPU_PAUSE_H_
#define COHORT_BASE_CPU_PAUSE_H_

namespace cohort {

inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace cohort

#endif  // COHORT_BASE_CPU_PAUSE_H_
