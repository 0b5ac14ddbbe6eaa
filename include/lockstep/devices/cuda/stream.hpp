/// \file
/// Streams and points in them. Invariant: made and ended with the GPU's context current.
#pragma once

#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Of a stream whose blocks go before those of other streams that wait for a multiprocessor.
struct Urgent {};

/// A stream of its own, which does not wait for the default one.
class Stream {
 public:
  [[gnu::cold]] explicit Stream(Urgent) {
    int least = 0, greatest = 0;
    check(driver().cuCtxGetStreamPriorityRange(&least, &greatest), "making a stream");
    check(driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, greatest),
          "making a stream");
  }
  [[gnu::cold]] Stream() {
    check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "making a stream");
  }
  ~Stream() { driver().cuStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

/// A point in a stream that other streams can wait for. With CU_EVENT_DEFAULT it has a time.
class Event {
 public:
  explicit Event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    check(driver().cuEventCreate(&event_, flags), "making an event");
  }
  ~Event() { driver().cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(CUstream stream) {
    check(driver().cuEventRecord(event_, stream), "recording an event");
  }
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

}  // namespace lockstep::detail::cuda
