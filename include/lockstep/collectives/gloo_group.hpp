/// \file
/// The collective between processes on CPUs, over Gloo. Invariants: each element is summed by one
/// owner (small messages, and larger ones of two members: by each member from the same bytes) in
/// the order of ranks or of a binary tree over them, so all members get the same bits; every wait
/// ends by an abort from another thread, by the loss of the connection, or at its deadline; after
/// that the group is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "lockstep/collectives/gloo_sum.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

class GlooMesh;
namespace detail {
class GlooChannel;
}

/// This process' place in a group of processes. Its operations are called by one thread at a time;
/// `abort` from any. Copies are the same member. Each group of a mesh has a channel of its own, the
/// same in all processes, and may be used beside the others.
///
/// Up to GlooChannel::small bytes go to all members at once, which add them themselves; of two
/// members, up to GlooChannel::both_add. More are cut into one part a member, which adds it and
/// sends the sum to all (reduce-scatter and all-gather, all to all). The sums of `all_reduce`
/// travel with the first message.
///
/// \throws CollectiveTimeout if a wait makes no progress for `timeout`, CollectiveAborted after an
/// abort here or in another process, CollectiveError if a connection is lost, UsageError if the
/// members' calls differ.
/// \code
///   lockstep::GlooGroup group(mesh, {.channel = 0});
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class GlooGroup {
 public:
  /// What all members of the group give alike.
  struct Options {
    std::size_t channel = 0;
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< without progress
    SumOrder order = SumOrder::ranks;
  };

  LOCKSTEP_COLD_DECL GlooGroup(std::shared_ptr<GlooMesh> mesh, const Options& options);

  LOCKSTEP_DECL std::size_t rank() const;
  LOCKSTEP_DECL std::size_t size() const;
  /// Ends the operations of all groups of the mesh, in all processes.
  LOCKSTEP_COLD_DECL void abort();

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }

  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>,
                  "lockstep::GlooGroup: all_reduce adds numbers; give it an arithmetic type");
    reduce(reinterpret_cast<std::byte*>(p), {n, sizeof(T)}, &detail::sum_parts<T>, sums, m);
  }

  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    send(reinterpret_cast<std::byte*>(p), {n, sizeof(T)}, root);
  }

  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    gather(reinterpret_cast<const std::byte*>(p), {n, sizeof(T)},
           reinterpret_cast<std::byte*>(out));
  }

  LOCKSTEP_DECL void barrier();

 private:
  struct Elements {
    std::size_t n, size;
    std::size_t bytes() const { return n * size; }
  };

  LOCKSTEP_DECL void reduce(std::byte* p, Elements elements, detail::GlooSum sum, double* sums,
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
