/// \file
/// A member of a group over a Channel.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "lockstep/collectives/byte_collective.hpp"
#include "lockstep/collectives/channel.hpp"
#include "lockstep/collectives/channel_group.hpp"
#include "lockstep/collectives/topology.hpp"

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

  std::shared_ptr<C> channel_;
  ChannelGroup<C> algorithms_;
};

}  // namespace lockstep::detail
