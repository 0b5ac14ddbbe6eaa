#pragma once

#include "lockstep/collectives/tcp/tcp_group.hpp"

#include <memory>
#include <utility>

#include "lockstep/collectives/algorithms/channel_member.hpp"
#include "lockstep/collectives/tcp/tcp_channel.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

struct TcpGroup::Member final : detail::ChannelMember<detail::TcpChannel> {
  Member(std::shared_ptr<TcpMesh> of, const Options& options)
      : ChannelMember(claim(of, options), of->options().topology, options.order), mesh(of) {}

  static std::shared_ptr<detail::TcpChannel> claim(const std::shared_ptr<TcpMesh>& mesh,
                                                   const Options& options) {
    if (options.channel >= mesh->channels_.size())
      throw UsageError("tcp group: channel is {}; the mesh has {}", options.channel,
                       mesh->channels_.size());
    detail::TcpChannel& channel = *mesh->channels_[options.channel];
    channel.claim(options);
    return {mesh, &channel};
  }

  void abort() override { mesh->abort(); }
  void lose(std::size_t rank) override { mesh->lose(rank); }

  const std::shared_ptr<TcpMesh> mesh;
};

TcpGroup::TcpGroup(std::shared_ptr<TcpMesh> mesh, const Options& options)
    : ProcessGroup(std::make_shared<Member>(std::move(mesh), options)) {}

}  // namespace lockstep
