// A file descriptor that its owner closes when it is destroyed.
#ifndef COHORT_BASE_UNIQUE_FD_H_
#define COHORT_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace cohort {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  // Negative: no descriptor.
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace cohort

#endif  // COHORT_BASE_UNIQUE_FD_H_
