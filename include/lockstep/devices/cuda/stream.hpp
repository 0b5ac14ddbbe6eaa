/// \file
/// Streams and points in them. Invariant: made and ended with the GPU's context current.
#pragma once

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Of a stream whose blocks go before those of other streams that wait for a multiprocessor.
struct Urgent {};

/// A stream of its own, which does not wait for the default one.
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

/// A point in a stream that other streams can wait for. With CU_EVENT_DEFAULT it has a time.
class Event {
 public:
  LOCKSTEP_DECL explicit Event(unsigned flags = CU_EVENT_DISABLE_TIMING);
  LOCKSTEP_DECL ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  LOCKSTEP_DECL void record(CUstream stream);
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/stream.ipp"
#endif
