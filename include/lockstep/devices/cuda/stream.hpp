/// \file
/// Streams and events. Invariant: created and destroyed with the GPU's context current.
#pragma once

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Selects the greatest stream priority: pending blocks of such a stream are scheduled before those
/// of other streams.
struct Urgent {};

/// A non-blocking stream: it does not synchronise with the default stream.
class Stream {
 public:
  LOCKSTEP_COLD_DECL explicit Stream(Urgent);
  LOCKSTEP_COLD_DECL Stream();
  LOCKSTEP_DECL ~Stream();
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
  LOCKSTEP_DECL explicit Event(unsigned flags = CU_EVENT_DISABLE_TIMING);
  LOCKSTEP_DECL ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  /// Marks the end of all work enqueued on the stream so far.
  LOCKSTEP_DECL void record(CUstream stream);
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/stream.ipp"
#endif
