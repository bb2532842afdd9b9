// Replaces a program's calendar clock, under LD_PRELOAD. CLOCK_REALTIME runs ahead of the machine's
// by the nanoseconds (int64) in the file $COHORT_TEST_CALENDAR, which a test may change at any
// time. The kernel does not know of it. A wait by the calendar that Abseil, and so gRPC, begins is
// translated; a wait in progress does not notice that the calendar is set.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr int64_t kSecond = 1000000000;

using Syscall = long (*)(long, ...);

const volatile int64_t* g_ahead = nullptr;

long Call(long number, long a, long b, long c = 0, long d = 0, long e = 0, long f = 0) {
  static const auto next = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  return next(number, a, b, c, d, e, f);
}

void Move(timespec& time, int64_t by) {
  const int64_t nanos = time.tv_sec * kSecond + time.tv_nsec + by;
  time.tv_sec = nanos / kSecond;
  time.tv_nsec = nanos % kSecond;
}

__attribute__((constructor)) void Open() {
  const char* const path = getenv("COHORT_TEST_CALENDAR");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* const page = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) g_ahead = static_cast<const volatile int64_t*>(page);
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = Call(SYS_clock_gettime, clock, reinterpret_cast<long>(now));
  if (result == 0 && g_ahead != nullptr &&
      (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    Move(*now, *g_ahead);
  }
  return static_cast<int>(result);
}

extern "C" int gettimeofday(timeval* now, void*) noexcept {
  timespec precise = {};
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

extern "C" time_t time(time_t* now) noexcept {
  timespec precise = {};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}

extern "C" long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  auto* const until = reinterpret_cast<const timespec*>(arguments[3]);
  timespec moved = {};
  if (number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 && until != nullptr &&
      g_ahead != nullptr) {
    moved = *until;
    Move(moved, -*g_ahead);
    arguments[3] = reinterpret_cast<long>(&moved);
  }
  return Call(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}
