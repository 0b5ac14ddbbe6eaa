#pragma once

#include "lockstep/collectives/mpi/mpi_group.hpp"

#include "lockstep/collectives/algorithms/channel_member.hpp"
#include "lockstep/collectives/mpi/mpi_channel.hpp"

namespace lockstep {

struct MpiGroup::Member final : detail::ChannelMember<detail::MpiChannel> {
  using Cause = detail::Shutdown::Cause;

  Member(const MpiCommunicator& of, const Options& options)
      : ChannelMember(std::make_shared<detail::MpiChannel>(of, options.timeout, options.spins),
                      detail::Topology::direct, options.order) {}

  void abort() override { channel().end(Cause::aborted, rank()); }
  void lose(std::size_t lost) override { channel().end(Cause::lost, lost); }
};

MpiGroup::MpiGroup(const MpiCommunicator& of, const Options& options)
    : ProcessGroup(std::make_shared<Member>(of, options)) {}

}  // namespace lockstep
