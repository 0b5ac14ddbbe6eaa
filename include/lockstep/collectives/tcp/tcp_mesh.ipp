#pragma once

#include "lockstep/collectives/tcp/tcp_mesh.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <map>
#include <system_error>
#include <utility>

#include "lockstep/collectives/tcp/tcp_channel.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep {

TcpMesh::TcpMesh(const Options& options, std::vector<DataConnection> connections)
    : options_(options), wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wakeup_.number() < 0)
    throw Error("data connections: cannot create an event descriptor: {}",
                std::generic_category().message(errno));
  const std::vector<std::size_t> peers = detail::peers_of(rank(), size(), options_.topology);
  const std::size_t each = peers.empty() ? 0 : connections.size() / peers.size();
  std::map<std::pair<std::size_t, std::size_t>, DataConnection*> by_place;
  for (DataConnection& connection : connections)
    by_place[{connection.rank, connection.index}] = &connection;
  if (each % options_.channels != 0 || (each == 0 && !peers.empty()) ||
      by_place.size() != each * peers.size())
    throw UsageError(
        "tcp mesh: replica {} has {} connections to {} peers; give it as many to each, a multiple "
        "of {}",
        name(rank()), connections.size(), peers.size(), options_.channels);
  const std::size_t per_channel = each / options_.channels;
  for (std::size_t channel = 0; channel < options_.channels; ++channel) {
    std::vector<std::vector<detail::TcpLink>> links(peers.size());
    for (std::size_t i = 0; i < peers.size(); ++i)
      for (std::size_t k = 0; k < per_channel; ++k) {
        const auto found = by_place.find({peers[i], channel * per_channel + k});
        if (found == by_place.end())
          throw UsageError("tcp mesh: replica {} has no connection {} to replica {}", name(rank()),
                           channel * per_channel + k, name(peers[i]));
        DataConnection& connection = *found->second;
        detail::TcpHealth::prepare(connection.socket.number(), options_.silence);
        links[i].emplace_back(std::move(connection.socket), connection.send_key,
                              connection.receive_key);
      }
    channels_.push_back(std::make_unique<detail::TcpChannel>(*this, peers, std::move(links)));
  }
}

TcpMesh::~TcpMesh() = default;

void TcpMesh::abort() {
  const auto here = static_cast<std::uint32_t>(name(rank()));
  end({.cause = Cause::aborted, .rank = here, .by = here});
}

void TcpMesh::lose(std::size_t lost) {
  end({.cause = Cause::lost,
       .rank = static_cast<std::uint32_t>(lost),
       .by = static_cast<std::uint32_t>(name(rank()))});
}

void TcpMesh::end(const detail::Shutdown& why) {
  shut_down(why);
  notify();
}

void TcpMesh::shut_down(const detail::Shutdown& why) {
  const std::scoped_lock lock(mutex_);
  if (down_) return;
  shutdown_ = why;
  down_ = true;
  ::eventfd_write(wakeup_.number(), 1);
}

detail::Shutdown TcpMesh::shutdown() const {
  const std::scoped_lock lock(mutex_);
  return shutdown_;
}

void TcpMesh::notify() {
  for (const auto& channel : channels_) channel->notify_if_idle();
}

}  // namespace lockstep
