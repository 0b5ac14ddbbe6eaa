/// \file
/// Streams and events. Invariant: created and destroyed with the GPU's context current.
#pragma once

#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Selects the greatest stream priority: pending blocks of such a stream are scheduled before those
/// of other streams.
struct Urgent {};

/// A non-blocking stream: it does not synchronise with the default stream.
class Stream {
 public:
  [[gnu::cold]] explicit Stream(Urgent) {
    int least = 0, greatest = 0;
    check(driver().cuCtxGetStreamPriorityRange(&least, &greatest), "creating a stream");
    // Lower numbers mean higher priority.
    check(driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, greatest),
          "creating a stream");
  }
  [[gnu::cold]] Stream() {
    check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "creating a stream");
  }
  ~Stream() { driver().cuStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

/// An event that other streams can wait for. With CU_EVENT_DEFAULT it also records a time.
class Event {
 public:
  /// Creates the event. \throws DeviceError.
  explicit Event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    check(driver().cuEventCreate(&event_, flags), "creating an event");
  }
  ~Event() { driver().cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  /// Marks the end of all work enqueued on the stream so far.
  void record(CUstream stream) {
    check(driver().cuEventRecord(event_, stream), "recording an event");
  }
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

}  // namespace lockstep::detail::cuda
