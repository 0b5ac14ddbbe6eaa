/// \file
/// The collective algorithms over a Channel. Invariants: each element is added by one member in the
/// group's SumOrder, or by all members from the same bytes, so all get the same bits, those of
/// ThreadGroup; no member leaves an operation before all have entered it and each pair of peers has
/// compared its calls, so that all hear of an error in the operation in which it happens.
///
///     connected    size of the data     all_reduce
///     direct       up to `small`        each sends everything to all; all add
///                  two members          the same, up to `both_add`
///                  more                 each adds one part, and sends its sum to all
///     tree         up to `small_tree`   gathered along the tree to rank 0, which adds; broadcast
///                  more, SumOrder tree  partial sums up the tree; broadcast
///                  more, ranks          a chain: rank r adds its values to the sum of ranks 0 to
///                                       r - 1; the result comes back along it; chunk by chunk
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "lockstep/collectives/algorithms/channel.hpp"
#include "lockstep/collectives/algorithms/line_slice.hpp"
#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/collectives/algorithms/sum_parts.hpp"
#include "lockstep/collectives/algorithms/topology.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// One member of a group whose peers are those of `topology`.
template <Channel C>
class ChannelGroup {
 public:
  static constexpr std::size_t small = std::size_t{64} << 10, both_add = std::size_t{512} << 10;
  static constexpr std::size_t small_tree = 4096;
  /// Bytes that are added at a time, and that wait in buffers.
  static constexpr std::size_t chunk = std::size_t{4} << 20;
  /// Bytes that travel along a chain or a tree at a time.
  static constexpr std::size_t link_chunk = std::size_t{256} << 10;

  ChannelGroup(C& channel, Topology topology, SumOrder order)
      : channel_(channel),
        topology_(topology),
        order_(order),
        tree_(tree_place(channel.rank(), channel.size())),
        parts_(channel.size()) {}

  /// Replaces p[0..bytes) and the `sums_bytes` at sums, which are doubles, with their sums.
  void all_reduce(std::byte* p, std::size_t bytes, SumParts sum, std::byte* sums,
                  std::size_t sums_bytes) {
    if (bytes + sums_bytes == 0) return barrier();
    const std::size_t each = bytes + sums_bytes;
    const bool fits = topology_ == Topology::direct
                          ? each <= small && each * (size() - 1) <= small * (most_direct - 1)
                          : each <= small_tree;
    if (fits) return reduce_small(p, bytes, sum, sums, sums_bytes);
    reduce(p, bytes, sum);
    reduce(sums, sums_bytes, &sum_parts<double>);
  }

  /// to[0..bytes) becomes the sum of the members' parts, of which this one has `count`, at `own`;
  /// `to` may be one of them. With SumOrder::ranks a sum travels from member to member, and each adds
  /// its parts one after the other; with SumOrder::tree each member's parts are a subtree.
  void all_reduce_parts(std::byte* to, Parts own, std::size_t count, std::size_t bytes,
                        SumParts sum) {
    if (size() > 1 && order_ == SumOrder::ranks) return reduce_chain(to, own, count, bytes, sum);
    sum(to, own, count, bytes, order_);
    if (size() > 1) reduce(to, bytes, sum);
  }

  /// The sum over the members `from` of this member's range, of which there is one for each. Along a
  /// tree the others add zeros.
  void reduce_scatter(std::byte* p, std::span<const Slice> ranges, Slice from, SumParts sum) {
    const bool sends = from.contains(rank());
    if (topology_ == Topology::tree) {
      barrier();  // ranges may be empty
      for (const Slice& range : ranges) {
        if (!sends) std::fill_n(p + range.first, range.count, std::byte{0});
        reduce(p + range.first, range.count, sum);
      }
      return;
    }
    const Slice own = ranges[rank()];
    for_each_piece(most_of(ranges), piece(), [&](std::size_t at, std::size_t count) {
      const Slice mine = piece_of(own, at, count);
      std::byte* const received = channel_.reserve(mine.count * from.count);
      for (std::size_t i = 0; i < from.count; ++i)
        parts_[i] = from.first + i == rank() ? p + mine.first : received + mine.count * i;
      for_each_peer([&](std::size_t r) {
        const Slice theirs = piece_of(ranges[r], at, count);
        if (sends) channel_.send(r, p + theirs.first, theirs.count);
        if (from.contains(r))
          channel_.receive(r, const_cast<std::byte*>(parts_[r - from.first]), mine.count);
      });
      channel_.complete();
      sum(p + mine.first, parts_.data(), from.count, mine.count, order_);
    });
  }

  void broadcast(std::byte* p, std::size_t bytes, std::size_t root) {
    if (topology_ == Topology::direct) {
      for_each_piece(bytes, chunk, [&](std::size_t at, std::size_t count) {
        if (root == rank())
          for_each_peer([&](std::size_t r) { channel_.send(r, p + at, count); });
        else
          channel_.receive(root, p + at, count);
      });
      return;
    }
    barrier();  // a member far from the others would not wait for them
    flood(p, bytes, root);
  }

  /// `out` holds p[0..bytes) of this member in its place.
  void all_gather(std::size_t bytes, std::byte* out) {
    if (topology_ == Topology::direct) {
      for_each_piece(bytes, piece(), [&](std::size_t at, std::size_t count) {
        for_each_peer([&](std::size_t r) {
          channel_.send(r, out + rank() * bytes + at, count);
          channel_.receive(r, out + r * bytes + at, count);
        });
      });
      return;
    }
    if (bytes == 0) return barrier();
    gather_up(bytes, out);
    flood(out, size() * bytes, 0);
  }

  /// Range r comes from member r.
  void all_gather(std::byte* p, std::span<const Slice> ranges) {
    if (topology_ == Topology::tree) {
      barrier();
      for (std::size_t r = 0; r < size(); ++r) flood(p + ranges[r].first, ranges[r].count, r);
      return;
    }
    for_each_piece(most_of(ranges), piece(), [&](std::size_t at, std::size_t count) {
      const Slice own = piece_of(ranges[rank()], at, count);
      for_each_peer([&](std::size_t r) {
        const Slice theirs = piece_of(ranges[r], at, count);
        channel_.send(r, p + own.first, own.count);
        channel_.receive(r, p + theirs.first, theirs.count);
      });
    });
  }

  void barrier() {
    // Between direct peers the calls that are exchanged at the beginning are a barrier.
    if (topology_ == Topology::direct) return;
    std::byte* const tokens = channel_.reserve(size());
    std::fill_n(tokens, size(), std::byte{1});
    gather_up(1, tokens);
    flood(tokens, size(), 0);
  }

 private:
  std::size_t rank() const { return channel_.rank(); }
  std::size_t size() const { return channel_.size(); }

  /// Begins with the next rank, so that not all members send to the same one first.
  template <class F>
  void for_each_peer(const F& f) const {
    for (std::size_t i = 1; i < size(); ++i) f((rank() + i) % size());
  }

  /// Bytes that go to all peers, or come from all, at a time: whole cache lines.
  std::size_t piece() const { return std::max<std::size_t>(chunk / size() / 64, 1) * 64; }
  static std::size_t most_of(std::span<const Slice> ranges) {
    std::size_t most = 0;
    for (const Slice& range : ranges) most = std::max(most, range.count);
    return most;
  }
  /// The part of `range` in [at, at + count) from its beginning.
  static Slice piece_of(const Slice& range, std::size_t at, std::size_t count) {
    const std::size_t first = std::min(at, range.count);
    return {range.first + first, std::min(count, range.count - first)};
  }

  /// Calls f(at, count) for pieces of up to `most` bytes, and completes all but the last.
  template <class F>
  void for_each_piece(std::size_t bytes, std::size_t most, const F& f) {
    for (std::size_t at = 0; at < bytes; at += most) {
      if (at > 0) channel_.complete();
      f(at, std::min(most, bytes - at));
    }
  }

  void reduce_small(std::byte* p, std::size_t bytes, SumParts sum, std::byte* sums,
                    std::size_t sums_bytes) {
    // The sums come first, since they need more alignment.
    const std::size_t each = sums_bytes + bytes, stride = (each + 63) / 64 * 64;
    std::byte* const all = channel_.reserve(size() * stride);
    std::byte* const own = all + rank() * stride;
    if (sums_bytes > 0) std::memcpy(own, sums, sums_bytes);
    if (bytes > 0) std::memcpy(own + sums_bytes, p, bytes);
    std::fill_n(own + each, stride - each, std::byte{0});  // sent along a tree
    const bool direct = topology_ == Topology::direct;
    if (direct)
      for_each_peer([&](std::size_t r) {
        channel_.send(r, own, each);
        channel_.receive(r, all + r * stride, each);
      });
    else
      gather_up(stride, all);
    channel_.complete();
    if (direct || rank() == 0) {
      for (std::size_t r = 0; r < size(); ++r) parts_[r] = all + r * stride;
      if (sums_bytes > 0) sum_parts<double>(sums, parts_.data(), size(), sums_bytes, order_);
      for (std::size_t r = 0; r < size(); ++r) parts_[r] += sums_bytes;
      if (bytes > 0) sum(p, parts_.data(), size(), bytes, order_);
    }
    if (direct) return;
    flood(sums, sums_bytes, 0);
    flood(p, bytes, 0);
  }

  void reduce(std::byte* p, std::size_t bytes, SumParts sum) {
    if (topology_ == Topology::tree && order_ == SumOrder::ranks) {
      const std::byte* const own = p;
      return reduce_chain(p, &own, 1, bytes, sum);
    }
    for (std::size_t at = 0; at < bytes; at += chunk) {
      const std::size_t count = std::min(chunk, bytes - at);
      topology_ == Topology::direct ? reduce_direct(p + at, count, sum)
                                    : reduce_tree(p + at, count, sum);
    }
  }

  void reduce_direct(std::byte* p, std::size_t bytes, SumParts sum) {
    const bool all_add = size() == 2 && bytes <= both_add;
    const auto part_of = [&](std::size_t r) {
      return all_add ? Slice{0, bytes} : line_slice(bytes, size(), r);
    };
    const Slice own = part_of(rank());
    std::byte* const received = channel_.reserve(own.count * (size() - 1));
    std::size_t index = 0;
    for (std::size_t r = 0; r < size(); ++r)
      parts_[r] = r == rank() ? p + own.first : received + own.count * index++;
    for_each_peer([&](std::size_t r) {
      const Slice theirs = part_of(r);
      channel_.send(r, p + theirs.first, theirs.count);
      channel_.receive(r, const_cast<std::byte*>(parts_[r]), own.count);
    });
    channel_.complete();
    sum(p + own.first, parts_.data(), size(), own.count, order_);
    if (all_add) return;
    for_each_peer([&](std::size_t r) {
      const Slice theirs = part_of(r);
      channel_.send(r, p + own.first, own.count);
      channel_.receive(r, p + theirs.first, theirs.count);
    });
    channel_.complete();
  }

  /// Adds the children's sums in the order of SumOrder::tree: own + smallest segment + ...
  void reduce_tree(std::byte* p, std::size_t bytes, SumParts sum) {
    const std::size_t stride = (bytes + 63) / 64 * 64;
    std::byte* const received =
        channel_.reserve(stride * std::max<std::size_t>(tree_.children.size(), 1));
    for (std::size_t i = 0; i < tree_.children.size(); ++i)
      channel_.receive(tree_.children[i].rank, received + i * stride, bytes);
    channel_.complete();
    for (std::size_t i = 0; i < tree_.children.size(); ++i)
      add(p, p, received + i * stride, bytes, sum);
    if (tree_.parent) channel_.send(*tree_.parent, p, bytes);
    channel_.complete();
    flood(p, bytes, 0);
  }

  /// In step s rank r gets chunk s of the sum of the ranks before it, and the result of the chunk
  /// that has been to the end of the chain and back since. Two buffers in turn, because a sum is
  /// sent on while the next one arrives.
  void reduce_chain(std::byte* to, Parts own, std::size_t count, std::size_t bytes, SumParts sum) {
    const std::size_t chunks = (bytes + link_chunk - 1) / link_chunk;
    const std::size_t behind = 2 * (size() - 1 - rank());
    const bool is_first = rank() == 0, is_last = rank() + 1 == size();
    std::byte* const sums = channel_.reserve(4 * link_chunk);
    parts_.resize(std::max(size(), count + 1));
    const auto bytes_of = [&](std::size_t i) {
      return std::min(link_chunk, bytes - i * link_chunk);
    };
    for (std::size_t step = 0; step < chunks + behind; ++step) {
      const bool up = step < chunks, down = step >= behind && step - behind < chunks;
      const std::size_t at = step * link_chunk, back = (step - behind) * link_chunk;
      std::byte* const received = sums + (step % 2) * 2 * link_chunk;
      std::byte* const partial = is_last ? to + at : received + link_chunk;
      if (up && !is_first) channel_.receive(rank() - 1, received, bytes_of(step));
      if (down && !is_last) channel_.receive(rank() + 1, to + back, bytes_of(step - behind));
      channel_.complete();
      const std::byte* whole = partial;
      if (up) {
        std::size_t parts = 0;
        if (!is_first) parts_[parts++] = received;
        for (std::size_t i = 0; i < count; ++i) parts_[parts++] = own[i] + at;
        if (parts == 1)
          whole = parts_[0];
        else
          sum(partial, parts_.data(), parts, bytes_of(step), SumOrder::ranks);
      }
      if (up && !is_last) channel_.send(rank() + 1, whole, bytes_of(step));
      if (down && !is_first) channel_.send(rank() - 1, to + back, bytes_of(step - behind));
    }
    channel_.complete();
  }

  /// to = a + b. `to` may be one of them.
  void add(std::byte* to, const std::byte* a, const std::byte* b, std::size_t bytes, SumParts sum) {
    const std::array<const std::byte*, 2> two{a, b};
    sum(to, two.data(), 2, bytes, SumOrder::ranks);
  }

  /// Collects all[r * each] of each rank r at rank 0.
  void gather_up(std::size_t each, std::byte* all) {
    for (const TreePlace::Child& child : tree_.children)
      channel_.receive(child.rank, all + child.rank * each, (child.last - child.rank) * each);
    channel_.complete();
    if (tree_.parent)
      channel_.send(*tree_.parent, all + rank() * each, (tree_.last - rank()) * each);
  }

  /// Sends the root's bytes along the tree, away from the root.
  void flood(std::byte* p, std::size_t bytes, std::size_t root) {
    const std::size_t none = size();
    std::size_t source = root == rank() ? none : tree_.parent.value_or(none);
    for (const TreePlace::Child& child : tree_.children)
      if (root >= child.rank && root < child.last) source = child.rank;
    for (std::size_t at = 0; at < bytes; at += link_chunk) {
      const std::size_t count = std::min(link_chunk, bytes - at);
      if (source != none) {
        channel_.receive(source, p + at, count);
        channel_.complete();
      }
      const auto pass_on = [&](std::size_t r) {
        if (r != source) channel_.send(r, p + at, count);
      };
      if (tree_.parent) pass_on(*tree_.parent);
      for (const TreePlace::Child& child : tree_.children) pass_on(child.rank);
    }
    channel_.complete();
  }

  C& channel_;
  Topology topology_;
  SumOrder order_;
  TreePlace tree_;
  std::vector<const std::byte*> parts_;
};

}  // namespace lockstep::detail
