/// \file
/// Per-example random numbers on a GPU. Invariant: the same words, and the same numbers made of
/// them, as lockstep::Philox on the stream `ordinal` with the key mix(mix(seed, layer), pass).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/devices/cuda/commands.hpp"

namespace lockstep::detail::cuda {

/// The prelude's `Stream`, a kernel argument because it changes from step to step.
struct RandomStream {
  std::uint64_t key, first;
};
template <class Operands>
RandomStream stream_of(const Operands& io) {
  return {mix(mix(io.step.seed, io.key), io.step.pass), io.step.first_ordinal};
}

/// Copies `size` values per example; does nothing if `from` is `to`.
template <class D>
void copy_values(const Io<D>& io, std::size_t size, const ActivationOf<D>* from,
                 ActivationOf<D>* to) {
  if (from == to) return;
  io.device.copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                 io.step.count * size * sizeof(ActivationOf<D>));
}

/// A grid for `count` examples with `units` of work each, a few units per thread: `for (i64 n =
/// blockIdx.y; n < count; n += gridDim.y) for (i64 i = INDEX; i < units; i += STRIDE)`.
inline Grid example_grid(std::size_t count, std::size_t units) {
  constexpr std::size_t threads = 256, each = 4, most = 65535;
  const std::size_t blocks = (units + threads * each - 1) / (threads * each);
  return {{static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, most)),
           static_cast<unsigned>(std::min(count, most)), 1},
          {threads, 1, 1}};
}

}  // namespace lockstep::detail::cuda
