/// \file
/// The reference device: host memory, one thread, plain loops in T. Invariants: it needs no
/// library; a sum is made in T, in the order of its formula; every other device is judged by it.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/device.hpp"
#include "lockstep/devices/host/host_memory.hpp"

namespace lockstep {

/// Memory and copies of the reference device: all of it is the host's.
template <class T>
class ReferenceContext : public HostMemory {
 public:
  void add(T* y, const T* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
  }

  int threads() const { return 1; }
  void synchronize() {}
  struct Scope {
    ~Scope() {}  // not trivial, so that a scope that is held and not used gets no warning
  };
  Scope scope() { return {}; }
};

/// Computes in T (float or double) by loops that follow the formulas. The oracle of the tests, and
/// what a port to a new device is read from; slow.
/// \code
///   ls::Model model{Net{}, ls::OneDevice<ls::Reference<double>>{}, loss, optimizer};
/// \endcode
template <class T = double>
struct Reference {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                "lockstep::Reference: computes in float or double; write Reference<double>");
  using real = T;
  using Context = ReferenceContext<T>;
  using fusions = List<>;
  static constexpr std::string_view name = "reference";
  static constexpr std::string_view precision = std::is_same_v<T, double> ? "float64" : "float32";
  static constexpr bool is_host = true;
  bool operator==(const Reference&) const = default;

  /// The context of one of `replicas` local replicas; they share nothing.
  Context open([[maybe_unused]] std::size_t replicas, [[maybe_unused]] std::size_t index) const {
    return {};
  }
};

static_assert(Device<Reference<double>> && Device<Reference<float>> &&
              HostDevice<Reference<float>>);

}  // namespace lockstep
