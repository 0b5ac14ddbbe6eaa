/// \file
/// The collective between processes on CPUs, over Gloo. Invariants: each element is summed by one
/// owner (small messages, and larger ones of two members: by each member from the same bytes) in
/// the order of ranks or of a binary tree over them, so all members get the same bits; every wait
/// ends by an abort from another thread, by the loss of the connection, or at its deadline; after
/// that the group is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/collectives/gloo_channel.hpp"
#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/gloo_sum.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

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

  GlooGroup(std::shared_ptr<GlooMesh> mesh, const Options& options)
      : channel_(std::make_shared<detail::GlooChannel>(std::move(mesh), options.channel,
                                                       options.timeout, options.order)) {}

  std::size_t rank() const { return channel_->rank(); }
  std::size_t size() const { return channel_->size(); }
  /// Ends the operations of all groups of the mesh, in all processes.
  void abort() { channel_->abort(); }

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }

  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>,
                  "lockstep::GlooGroup: all_reduce adds numbers; give it an arithmetic type");
    run({Operation::all_reduce, n, m, 0, sizeof(T)}, [&](Channel& c) {
      const std::size_t bytes = n * sizeof(T), tail = m * sizeof(double);
      const bool sends_sums = tail <= Channel::small;
      const std::size_t at = sends_sums ? tail : 0;  // first the sums: they need more alignment
      const bool sends_all = at + bytes <= Channel::small && sends_sums;
      if (sends_sums && m > 0) std::memcpy(c.mine(), sums, tail);
      if (sends_all && n > 0) std::memcpy(c.mine() + at, p, bytes);
      c.send_frames(at + (sends_all ? bytes : 0), !sends_all);
      auto* const elements = reinterpret_cast<std::byte*>(p);
      if (sends_all) {
        c.meet();
        c.template add_frames<T>(elements, at, bytes);
      } else {
        c.reduce(elements, bytes, &detail::sum_parts<T>, false);
      }
      auto* const sum_bytes = reinterpret_cast<std::byte*>(sums);
      if (sends_sums) {
        c.template add_frames<double>(sum_bytes, 0, tail);
      } else {
        c.reduce(sum_bytes, tail, &detail::sum_parts<double>, bytes > 0);
      }
      c.finish();
    });
  }

  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (root >= size()) {
      abort();
      throw UsageError({"broadcast: no root ", root, " among ", size(), " members"});
    }
    run({Operation::broadcast, n, 0, root, sizeof(T)}, [&](Channel& c) {
      const std::size_t bytes = n * sizeof(T);
      const bool is_root = rank() == root, is_small = bytes <= Channel::small;
      if (is_root && is_small && n > 0) std::memcpy(c.mine(), p, bytes);
      c.send_frames(is_root && is_small ? bytes : 0, !is_small);
      auto* const target = reinterpret_cast<std::byte*>(p);
      if (is_small) {
        c.meet();
        if (!is_root && n > 0) std::memcpy(p, c.said_by(root), bytes);
      } else {
        c.copy(target, is_root ? nullptr : target, bytes, root, 1);
      }
      c.finish();
    });
  }

  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t bytes = n * sizeof(T);
    if (n > 0) std::memcpy(out + rank() * n, p, bytes);
    run({Operation::all_gather, n, 0, 0, sizeof(T)}, [&](Channel& c) {
      const bool is_small = bytes <= Channel::small;
      if (is_small && n > 0) std::memcpy(c.mine(), p, bytes);
      c.send_frames(is_small ? bytes : 0, !is_small);
      if (is_small) {
        c.meet();
        for (std::size_t r = 0; r < size() && n > 0; ++r)
          std::memcpy(out + r * n, c.said_by(r), bytes);
      } else {
        c.copy(reinterpret_cast<const std::byte*>(p), reinterpret_cast<std::byte*>(out), bytes, 0,
               size());
      }
      c.finish();
    });
  }

  void barrier() {
    run({Operation::barrier, 0, 0, 0, 0}, [&](Channel& c) {
      c.send_frames(0);
      c.meet();
      c.finish();
    });
  }

 private:
  using Channel = detail::GlooChannel;
  using Operation = detail::GlooCall::Operation;

  template <class Body>
  void run(const detail::GlooCall& call, const Body& body) {
    if (size() > 1) channel_->run(call, [&] { body(*channel_); });
  }

  std::shared_ptr<Channel> channel_;
};

static_assert(AllReduces<GlooGroup, float> && AllReducesWithSums<GlooGroup, float> &&
              Broadcasts<GlooGroup, float> && AllGathers<GlooGroup, float> && Barriers<GlooGroup>);

}  // namespace lockstep
