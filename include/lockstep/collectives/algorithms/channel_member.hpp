/// \file
/// A member of a group over a Channel.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithms/byte_collective.hpp"
#include "lockstep/collectives/algorithms/channel.hpp"
#include "lockstep/collectives/algorithms/channel_group.hpp"
#include "lockstep/collectives/algorithms/topology.hpp"

namespace lockstep::detail {

/// The operations of ChannelGroup as those of a ByteCollective. A group of one has nothing to send.
template <Channel C>
class ChannelMember : public ByteCollective {
 public:
  std::size_t rank() const override { return channel_->rank(); }
  std::size_t size() const override { return channel_->size(); }
  ExchangeProgress progress() const override { return channel_->progress(); }

  void all_reduce(const CollectiveCall& call, std::byte* p, const Additions& add,
                  double* sums) override {
    run(call, [&] {
      algorithms_.all_reduce(p, call.bytes(), add.parts, reinterpret_cast<std::byte*>(sums),
                             call.sum_bytes());
    });
  }
  void broadcast(const CollectiveCall& call, std::byte* p) override {
    run(call, [&] { algorithms_.broadcast(p, call.bytes(), call.root); });
  }
  void all_gather(const CollectiveCall& call, const std::byte* p, std::byte* out) override {
    if (call.bytes() > 0) std::memmove(out + rank() * call.bytes(), p, call.bytes());
    run(call, [&] { algorithms_.all_gather(call.bytes(), out); });
  }
  void reduce_scatter(const CollectiveCall& call, std::byte* p, const Additions& add,
                      std::span<const Slice> ranges, Slice from) override {
    run(call,
        [&] { algorithms_.reduce_scatter(p, in_bytes(ranges, call.element), from, add.parts); });
  }
  void all_gather(const CollectiveCall& call, std::byte* p,
                  std::span<const Slice> ranges) override {
    run(call, [&] { algorithms_.all_gather(p, in_bytes(ranges, call.element)); });
  }
  void barrier(const CollectiveCall& call) override {
    run(call, [&] { algorithms_.barrier(); });
  }

 protected:
  ChannelMember(std::shared_ptr<C> channel, Topology topology, SumOrder order)
      : channel_(std::move(channel)), algorithms_(*channel_, topology, order) {}

  C& channel() { return *channel_; }

 private:
  template <class Body>
  void run(const CollectiveCall& call, const Body& body) {
    if (size() > 1) channel_->run(call, body);
  }

  std::span<const Slice> in_bytes(std::span<const Slice> ranges, std::size_t element) {
    ranges_.clear();
    for (const Slice& range : ranges)
      ranges_.push_back({range.first * element, range.count * element});
    return ranges_;
  }

  std::shared_ptr<C> channel_;
  ChannelGroup<C> algorithms_;
  std::vector<Slice> ranges_;
};

}  // namespace lockstep::detail
