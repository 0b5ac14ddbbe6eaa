/// \file
/// Element-wise optimizers on the CPU: the loop of devices/host compiled for AVX2, on all threads.
/// Updates with weight decay or clipping run the plain loop, also on all threads. Invariant:
/// elements are independent and no multiply-add is fused that the plain loop would not fuse, so the
/// bits equal those of the plain loop for any processor and thread count, and replicas on different
/// machines stay identical. The optimizer flushes denormals to zero.
#pragma once

#include <concepts>
#include <cstddef>
#include <utility>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/devices/cpu/denormals.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/devices/host/optimizer.hpp"

namespace lockstep {
namespace detail {

#if defined(__x86_64__)
#define LOCKSTEP_AVX2_UPDATE gnu::noinline, gnu::target("avx2")
#else
#define LOCKSTEP_AVX2_UPDATE gnu::noinline
#endif

/// Loop policy of ElementwiseKernel: whole vectors first, then the plain loop for the rest.
struct UpdateInVectors {
  template <Prologue prologue, class Rule, class D, class... Slots>
  static void run(const Rule& rule, const UpdateIo<D>& io, Slots*... slot) {
    using T = typename D::real;
    using V = Lanes<T, vector_bytes>;
    const auto adjust = adjust_of(io);
    parallel_ranges(io.device.threads(), io.size, 1 << 14, [&](Slice part, std::size_t) {
      const FlushDenormalsScope flushes;  // moments of unused weights decay into denormals
      std::size_t done = 0;
      if constexpr (prologue != Prologue::all &&
                    std::invocable<const Rule&, V&, const V&, RepeatedReference<Slots, V>...>) {
        if (has_vectors()) {
          done = part.count - part.count % lanes_of<T, vector_bytes>;
          vectors<prologue == Prologue::penalty>(
              rule, adjust.l1, adjust.l2, done, std::index_sequence_for<Slots...>{},
              io.w + part.first, io.g + part.first, slot + part.first...);
        }
      }
      const std::size_t first = part.first + done;
      update_elements<prologue>(rule, adjust, part.count - done, io.w + first, io.g + first,
                                slot + first...);
    });
  }

 private:
  /// Updates `size` elements, a multiple of the vector length. The target is AVX2 without FMA, a
  /// separate feature, so the compiler cannot fuse multiply-adds.
  template <bool HasPenalty, class Rule, class T, std::size_t... I, class... Slots>
  [[LOCKSTEP_AVX2_UPDATE]] static void vectors(const Rule rule, const T l1, const T l2,
                                               const std::size_t size, std::index_sequence<I...>,
                                               T* w, T* g, Slots*... slot) {
    using V = Lanes<T, vector_bytes>;
    for (std::size_t i = 0; i < size; i += lanes_of<T, vector_bytes>) {
      V weight, gradient, state[sizeof...(I) + 1];
      load(weight, w + i);
      load(gradient, g + i);
      (load(state[I], slot + i), ...);
      if constexpr (HasPenalty) {
        const V down = weight < 0 ? V{} - l1 : V{};
        gradient += (weight > 0 ? V{} + l1 : down) + 2 * l2 * weight;
        store(g + i, gradient);
      }
      rule(weight, gradient, state[I]...);
      store(w + i, weight);
      (store(slot + i, state[I]), ...);
    }
  }
};
#undef LOCKSTEP_AVX2_UPDATE

}  // namespace detail

template <ElementwiseUpdate Op, class P>
struct Kernel<Op, BasicCpu<P>>
    : detail::ElementwiseKernel<Op, BasicCpu<P>, detail::UpdateInVectors> {
  using library_kernel = Kernel;
};

}  // namespace lockstep
