#pragma once

#include "lockstep/model/engine.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

void throw_batch_too_large(const OutOfMemory& e, std::string_view device, std::size_t count,
                           std::size_t bytes_per_example) {
  throw OutOfMemory(
      e.bytes(), e.free(),
      "{}: out of memory: the activations of {} examples on one replica need {} KiB, {} KiB each, "
      "and {} KiB are free; the largest batch of a replica that fits has {} examples: use a "
      "smaller batch, more devices, or ls::Recompute",
      device, count, e.bytes() >> 10, bytes_per_example >> 10, e.free() >> 10,
      e.free() / std::max<std::size_t>(bytes_per_example, 1));
}

}  // namespace lockstep::detail
