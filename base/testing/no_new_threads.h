// The system refuses new threads for as long as this object lives.
#ifndef COHORT_BASE_TESTING_NO_NEW_THREADS_H_
#define COHORT_BASE_TESTING_NO_NEW_THREADS_H_

#include <pthread.h>

#include <cstddef>

namespace cohort::testing {

// Makes new threads ask for a stack larger than any address space, so that pthread_create answers
// EAGAIN as it does at RLIMIT_NPROC, whichever user the test runs as. Threads that run go on. Holds
// for the whole process; one at a time.
class NoNewThreads {
 public:
  NoNewThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t refused;
    pthread_getattr_default_np(&refused);
    pthread_attr_setstacksize(&refused, size_t{1} << 50);
    pthread_setattr_default_np(&refused);
    pthread_attr_destroy(&refused);
  }
  ~NoNewThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace cohort::testing

#endif  // COHORT_BASE_TESTING_NO_NEW_THREADS_H_
