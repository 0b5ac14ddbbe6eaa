#pragma once

#include "lockstep/training/checks/verify_replicas.hpp"

#include <algorithm>
#include <string_view>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/sha256.hpp"

namespace lockstep::detail {

/// All replicas' digests, all-gathered:
///
///     | origin | 64 hex digits of tensor 0 | of tensor 1 | ... |  one row per replica, each_ bytes
class Digests {
 public:
  /// All-gathers the digests of `tensors`. Collective.
  Digests(const CollectiveRef& group, const std::vector<NamedBytes>& tensors,
          const ReplicaOrigin& origin)
      : replicas_(group.size()) {
    std::string mine(sizeof origin, '\0');
    std::memcpy(mine.data(), &origin, sizeof origin);
    for (const NamedBytes& t : tensors) mine += sha256_hex(t.bytes);
    each_ = mine.size();
    all_.resize(each_ * replicas_);
    group.all_gather(reinterpret_cast<const std::byte*>(mine.data()), mine.size(),
                     reinterpret_cast<std::byte*>(all_.data()));
  }

  std::size_t replicas() const { return replicas_; }
  /// The digest of a replica's tensor, as 64 hex digits.
  std::string_view of(std::size_t replica, std::size_t tensor) const {
    constexpr std::size_t width = 64;
    return std::string_view(all_).substr(replica * each_ + sizeof(ReplicaOrigin) + tensor * width,
                                         width);
  }
  /// Copied out of the bytes, which are not aligned.
  ReplicaOrigin origin(std::size_t replica) const {
    ReplicaOrigin origin;
    std::memcpy(&origin, all_.data() + replica * each_, sizeof origin);
    return origin;
  }
  /// Number of replicas whose tensor equals this replica's, itself included.
  std::size_t equal_to(std::size_t replica, std::size_t tensor) const {
    std::size_t count = 0;
    for (std::size_t r = 0; r < replicas_; ++r) count += of(r, tensor) == of(replica, tensor);
    return count;
  }
  /// The first replica that holds the majority's value of a tensor, or replica 0 if no value has a
  /// majority (Boyer-Moore majority vote).
  std::size_t reference(std::size_t tensor) const {
    std::size_t candidate = 0, votes = 0;
    for (std::size_t r = 0; r < replicas_; ++r) {
      if (votes == 0) candidate = r;
      if (of(r, tensor) == of(candidate, tensor))
        ++votes;
      else
        --votes;
    }
    if (2 * equal_to(candidate, tensor) <= replicas_) return 0;
    std::size_t first = 0;
    while (of(first, tensor) != of(candidate, tensor)) ++first;
    return first;
  }

 private:
  std::size_t replicas_, each_ = 0;  // each_: bytes per row
  std::string all_;
};

/// Throws for `replica`, whose tensor differs from that of `reference`. The message depends on what
/// the replicas' origins show: set_weights called a different number of times, called with
/// different values, or a fault of a step.
[[noreturn]] inline void throw_diverged(const Digests& digests, std::size_t replica,
                                        std::size_t reference, std::size_t tensor,
                                        const NamedBytes& what, std::uint64_t step) {
  const ReplicaOrigin origin = digests.origin(replica), other = digests.origin(reference);
  bool has_ranks = false;
  for (std::size_t r = 1; r < digests.replicas(); ++r)
    has_ranks |= digests.origin(r).rank != digests.origin(0).rank;
  const auto name = [&](std::size_t r) {
    return format_text("replica {}{}", r,
                       has_ranks ? format_text(" (rank {})", digests.origin(r).rank) : "");
  };
  const std::size_t equal = digests.equal_to(reference, tensor), all = digests.replicas();
  std::string sentence = format_text(
      "replicas: after step {}, {} holds a different {} than {}; ", step, name(replica), what.name,
      2 * equal > all ? format_text("{} of the {} replicas", equal, all) : name(reference));
  if (what.is_setting)
    sentence += "call the function in all processes, with the same names and values";
  else if (what.is_parameter && origin.sets != other.sets)
    sentence += format_text(
        "set_weights or load_weights was called {} times on rank {} and {} times on rank {} since "
        "the weights were last equal: call it in all processes, with the same values",
        origin.sets, origin.rank, other.sets, other.rank);
  else if (what.is_parameter && origin.rank != other.rank && origin.sets > 0)
    sentence +=
        "set_weights or load_weights was called with different values in different processes: use "
        "the same values or the same file in all";
  else
    sentence +=
        "a step that failed midway, or a kernel, changed one replica only: create a new model, and "
        "run with verify_every = 1 to find the first such step";
  throw ReplicasDiverged(replica, what.name, sentence);
}

bool have_equal_digests(const CollectiveRef& group, std::uint64_t digest) {
  std::vector<std::uint64_t> all(group.size());
  group.all_gather(reinterpret_cast<const std::byte*>(&digest), sizeof digest,
                   reinterpret_cast<std::byte*>(all.data()));
  return std::all_of(all.begin(), all.end(), [&](std::uint64_t other) { return other == digest; });
}

void verify_equal(const CollectiveRef& group, const std::vector<NamedBytes>& tensors,
                  const ReplicaOrigin& origin, std::uint64_t step) {
  const Digests digests(group, tensors, origin);
  std::vector<std::size_t> reference;
  for (std::size_t i = 0; i < tensors.size(); ++i) reference.push_back(digests.reference(i));
  for (std::size_t replica = 0; replica < digests.replicas(); ++replica)
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (digests.of(replica, i) != digests.of(reference[i], i))
        throw_diverged(digests, replica, reference[i], i, tensors[i], step);
}

}  // namespace lockstep::detail
