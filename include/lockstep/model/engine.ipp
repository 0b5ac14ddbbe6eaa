#pragma once

#include "lockstep/model/engine.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

void refuse_batch(const OutOfMemory& e, std::string_view device, std::size_t count,
                  std::size_t bytes_an_example) {
  throw OutOfMemory(
      e.bytes(), e.free(),
      {device, ": out of memory: the activations of ", count, " examples on one replica need ",
       e.bytes() >> 10, " KiB, ", bytes_an_example >> 10, " KiB each, and ", e.free() >> 10,
       " KiB are free; the largest batch of a replica that fits has ",
       e.free() / std::max<std::size_t>(bytes_an_example, 1),
       " examples: use a smaller batch, more devices, or ls::Recompute"});
}

}  // namespace lockstep::detail
