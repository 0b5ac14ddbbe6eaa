/// \file
/// Descriptors of the simulated kernel. Invariants: their numbers are larger than those that the
/// real kernel gives, so that they never clash; a file lives as long as the simulation, since
/// packets and timers refer to it.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/testing/kernel/scheduler.hpp"

namespace lockstep::testing::detail {

class SimEpoll;

/// Something that a descriptor refers to. Calls return a count, or a negative error number.
class SimFile : public EventTarget {
 public:
  explicit SimFile(SimProcess& owner) : owner_(owner) {}

  /// The EPOLL... bits that hold now.
  virtual std::uint32_t ready() = 0;
  virtual ssize_t read(std::span<const iovec> to, bool peek);
  virtual ssize_t write(std::span<const iovec> from);
  /// The last descriptor was closed.
  virtual void close() {}
  void fire(std::uint32_t, std::uint64_t, std::uint64_t) override {}

  SimProcess& owner() { return owner_; }
  std::vector<SimEpoll*>& watchers() { return watchers_; }
  bool nonblocking = false;
  int descriptors = 0;

  /// Threads that wait for a change of `ready`.
  WaitQueue waiters;

 protected:
  /// Wakes those who wait for one of `events`.
  void changed(std::uint32_t events);

 private:
  friend class SimEpoll;
  SimProcess& owner_;
  std::vector<SimEpoll*> watchers_;
};

/// eventfd.
class SimCounter : public SimFile {
 public:
  SimCounter(SimProcess& owner, std::uint64_t value, bool semaphore)
      : SimFile(owner), value_(value), semaphore_(semaphore) {}
  std::uint32_t ready() override { return EPOLLOUT | (value_ > 0 ? EPOLLIN : 0u); }
  ssize_t read(std::span<const iovec> to, bool peek) override;
  ssize_t write(std::span<const iovec> from) override;

 private:
  std::uint64_t value_;
  bool semaphore_;
};

/// timerfd.
class SimTimer : public SimFile {
 public:
  SimTimer(SimProcess& owner, int its_clock) : SimFile(owner), clock(its_clock) {}
  std::uint32_t ready() override { return expirations_ > 0 ? EPOLLIN : 0u; }
  ssize_t read(std::span<const iovec> to, bool peek) override;
  void fire(std::uint32_t kind, std::uint64_t a, std::uint64_t b) override;
  void set(SimTime at, SimTime interval);
  SimTime left() const;
  SimTime interval() const { return interval_; }
  const int clock;

 private:
  SimTime at_ = never, interval_ = 0;
  std::uint64_t expirations_ = 0, version_ = 0;
};

/// One direction of a pipe.
class SimPipe {
 public:
  std::vector<char> bytes;
  SimFile *reader = nullptr, *writer = nullptr;
  static constexpr std::size_t capacity = 65536;
};

/// An end of a pipe, or of a pair of sockets.
class SimPipeEnd : public SimFile {
 public:
  SimPipeEnd(SimProcess& owner, std::shared_ptr<SimPipe> in, std::shared_ptr<SimPipe> out);
  std::uint32_t ready() override;
  ssize_t read(std::span<const iovec> to, bool peek) override;
  ssize_t write(std::span<const iovec> from) override;
  void close() override;

 private:
  std::shared_ptr<SimPipe> in_, out_;
};

/// epoll.
class SimEpoll : public SimFile {
 public:
  using SimFile::SimFile;
  std::uint32_t ready() override;
  int control(int operation, int descriptor, std::shared_ptr<SimFile> file,
              const epoll_event* event);
  int collect(std::span<epoll_event> to);
  void close() override;
  /// A change of `file`.
  void notify(SimFile& file);
  /// The last descriptor of `file` was closed.
  void forget(SimFile& file);

 private:
  struct Item {
    int descriptor;
    std::shared_ptr<SimFile> file;
    epoll_event event;
    bool edge = false;
    bool disabled = false;
  };
  std::vector<Item> items_;
};

/// The descriptors of all processes.
class Descriptors {
 public:
  static constexpr int first = 1 << 24;

  int add(std::shared_ptr<SimFile> file);
  /// Null if the number is not of this simulation.
  std::shared_ptr<SimFile> find(int number) const {
    const auto i = static_cast<std::size_t>(number - first);
    return number >= first && i < files_.size() ? files_[i] : nullptr;
  }
  int close(int number);
  void close_all(const SimProcess& process);

 private:
  std::vector<std::shared_ptr<SimFile>> files_;
  std::vector<std::shared_ptr<SimFile>> closed_;
  std::vector<int> free_;
};

/// Copies between buffers of a call and one range. \return the number of bytes.
std::size_t copy_out(std::span<const iovec> to, std::size_t done, const char* from, std::size_t n);
std::size_t total_bytes(std::span<const iovec> parts);

}  // namespace lockstep::testing::detail
