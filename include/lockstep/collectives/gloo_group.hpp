/// \file
/// The collective between processes on CPUs, over Gloo. Invariants: all members get the same bits,
/// since each element is summed by one owner in the order of ranks, or of a binary tree over them
/// (small messages, and larger ones of two members, are summed by each member from the same bytes);
/// every wait is ended by an abort from any thread, by the loss of a connection, or at its
/// deadline, and the group cannot be used after that.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/collectives/sum_parts.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

class GlooMesh;
namespace detail {
class GlooChannel;
}

/// This process' member of a group of processes. Its operations are called by one thread at a time,
/// `abort` by any. Copies are the same member. Each group of a mesh has its own channel, the same
/// in all processes; groups may be used concurrently.
///
/// An all-reduce sends up to GlooChannel::small bytes (GlooChannel::both_add with two members) to
/// all members, each of which adds. Larger data is split into one part per member, which adds the
/// part and sends the sum to all: reduce-scatter and all-gather by direct exchange. The `sums` of
/// `all_reduce` travel with the first message.
///
/// \throws CollectiveTimeout if a wait makes no progress for `timeout`, CollectiveAborted after an
/// abort in any process, CollectiveError if a connection is lost, UsageError if the members' calls
/// differ.
/// \code
///   lockstep::GlooGroup group(mesh, {.channel = 0});
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class GlooGroup {
 public:
  /// Options, equal in all members of the group.
  struct Options {
    std::size_t channel = 0;
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< without progress
    SumOrder order = SumOrder::ranks;
  };

  /// \throws UsageError if the channel is in use, CollectiveError if the mesh has shut down.
  LOCKSTEP_COLD_DECL GlooGroup(std::shared_ptr<GlooMesh> mesh, const Options& options);

  LOCKSTEP_DECL std::size_t rank() const;
  LOCKSTEP_DECL std::size_t size() const;
  /// Ends the operations of all groups of the mesh, in all processes.
  LOCKSTEP_COLD_DECL void abort();

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }

  /// Replaces p[0..n) and sums[0..m) with their sums over all members.
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>,
                  "lockstep::GlooGroup: all_reduce adds numbers; give it an arithmetic type");
    reduce(reinterpret_cast<std::byte*>(p), {n, sizeof(T)}, &detail::sum_parts<T>, sums, m);
  }

  /// Replaces p[0..n) with the root's.
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    send(reinterpret_cast<std::byte*>(p), {n, sizeof(T)}, root);
  }

  /// out[r n..(r + 1) n) becomes p[0..n) of member r.
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    gather(reinterpret_cast<const std::byte*>(p), {n, sizeof(T)},
           reinterpret_cast<std::byte*>(out));
  }

  /// Returns when all members have called it.
  LOCKSTEP_DECL void barrier();

 private:
  struct Elements {
    std::size_t n, size;
    std::size_t bytes() const { return n * size; }
  };

  LOCKSTEP_DECL void reduce(std::byte* p, Elements elements, detail::SumParts sum, double* sums,
                            std::size_t m);
  LOCKSTEP_DECL void send(std::byte* p, Elements elements, std::size_t root);
  LOCKSTEP_DECL void gather(const std::byte* p, Elements elements, std::byte* out);

  std::shared_ptr<detail::GlooChannel> channel_;
};

static_assert(AllReduces<GlooGroup, float> && AllReducesWithSums<GlooGroup, float> &&
              Broadcasts<GlooGroup, float> && AllGathers<GlooGroup, float> && Barriers<GlooGroup>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_group.ipp"
#endif
