#pragma once

#include "lockstep/collectives/tcp_group.hpp"

#include <cstring>
#include <utility>

#include "lockstep/collectives/channel_group.hpp"
#include "lockstep/collectives/tcp_channel.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

struct TcpGroup::Member {
  using Call = detail::CollectiveCall;

  Member(detail::TcpChannel& c, detail::Topology topology, SumOrder order)
      : channel(c), algorithms(c, topology, order) {}

  static Call call(Call::Operation operation, const detail::Elements& elements, std::size_t m = 0,
                   std::size_t root = 0) {
    return {operation, elements.kind, elements.n, m, root, elements.size};
  }

  detail::TcpChannel& channel;
  detail::ChannelGroup<detail::TcpChannel> algorithms;
};

TcpGroup::TcpGroup(std::shared_ptr<TcpMesh> mesh, const Options& options) : mesh_(std::move(mesh)) {
  if (options.channel >= mesh_->channels_.size())
    throw UsageError("tcp group: channel is {}; the mesh has {}", options.channel,
                     mesh_->channels_.size());
  detail::TcpChannel& channel = *mesh_->channels_[options.channel];
  channel.claim(options.channel, options.timeout, options.spins);
  member_ = std::make_shared<Member>(channel, mesh_->options().topology, options.order);
}

void TcpGroup::reduce(std::byte* p, detail::Elements elements, detail::SumParts sum, double* sums,
                      std::size_t m) {
  if (size() == 1) return;
  member_->channel.run(
      Member::call(detail::CollectiveCall::Operation::all_reduce, elements, m), [&] {
        member_->algorithms.all_reduce(p, elements.bytes(), sum, reinterpret_cast<std::byte*>(sums),
                                       m * sizeof(double));
      });
}

void TcpGroup::send(std::byte* p, detail::Elements elements, std::size_t root) {
  if (root >= size()) {
    abort();
    throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root, size());
  }
  if (size() == 1) return;
  member_->channel.run(
      Member::call(detail::CollectiveCall::Operation::broadcast, elements, 0, root),
      [&] { member_->algorithms.broadcast(p, elements.bytes(), root); });
}

void TcpGroup::gather(const std::byte* p, detail::Elements elements, std::byte* out) {
  const std::size_t bytes = elements.bytes();
  if (bytes > 0) std::memcpy(out + rank() * bytes, p, bytes);
  if (size() == 1) return;
  member_->channel.run(Member::call(detail::CollectiveCall::Operation::all_gather, elements),
                       [&] { member_->algorithms.all_gather(bytes, out); });
}

void TcpGroup::barrier() {
  if (size() == 1) return;
  member_->channel.run(Member::call(detail::CollectiveCall::Operation::barrier, {}),
                       [&] { member_->algorithms.barrier(); });
}

}  // namespace lockstep
