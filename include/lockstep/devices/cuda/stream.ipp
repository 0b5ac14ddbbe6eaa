#pragma once

#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

Stream::Stream(Urgent) {
  int least = 0, greatest = 0;
  check(driver().cuCtxGetStreamPriorityRange(&least, &greatest), "creating a stream");
  // Lower numbers mean higher priority.
  check(driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, greatest),
        "creating a stream");
}

Stream::Stream() {
  check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "creating a stream");
}

Stream::~Stream() { driver().cuStreamDestroy(stream_); }

Event::Event(unsigned flags) { check(driver().cuEventCreate(&event_, flags), "creating an event"); }

Event::~Event() { driver().cuEventDestroy(event_); }

void Event::record(CUstream stream) {
  check(driver().cuEventRecord(event_, stream), "recording an event");
}

}  // namespace lockstep::detail::cuda
