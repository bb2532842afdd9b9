// A file descriptor that is closed with its object.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_FILE_DESCRIPTOR_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace cohort::worker {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close() { *this = FileDescriptor(); }

 private:
  int fd_ = -1;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_FILE_DESCRIPTOR_H_
