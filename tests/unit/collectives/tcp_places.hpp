/// \file
/// Groups over connected sockets for the tests of TCP.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/tcp/tcp_group.hpp"
#include "lockstep/collectives/tcp/tcp_mesh.hpp"

namespace tcp_test {

using lockstep::DataConnection;
using lockstep::FileDescriptor;
using lockstep::SumOrder;
using lockstep::TcpGroup;
using lockstep::TcpMesh;
using lockstep::WireKey;
using lockstep::detail::Topology;

/// Two keys, one per direction, that differ between connections.
inline std::pair<WireKey, WireKey> keys_of(std::size_t a, std::size_t b, std::size_t index) {
  WireKey there, back;
  for (std::size_t i = 0; i < there.key.size(); ++i)
    there.key[i] = static_cast<unsigned char>(a * 7 + b * 31 + index * 3 + i);
  back = there;
  back.key[0] ^= 0x80;
  back.nonce[3] = 9;
  return {there, back};
}

/// The connections of each rank: pairs of sockets, `per_peer` of each two peers.
inline std::vector<std::vector<DataConnection>> connect_all(std::size_t size, Topology topology,
                                                            std::size_t per_peer, bool sealed) {
  std::vector<std::vector<DataConnection>> all(size);
  for (std::size_t a = 0; a < size; ++a)
    for (const std::size_t b : lockstep::detail::peers_of(a, size, topology)) {
      if (b < a) continue;
      for (std::size_t index = 0; index < per_peer; ++index) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
          throw std::runtime_error("no pair of sockets");
        DataConnection one{.rank = b, .index = index, .socket = FileDescriptor(ends[0])},
            other{.rank = a, .index = index, .socket = FileDescriptor(ends[1])};
        if (sealed) {
          const auto [there, back] = keys_of(a, b, index);
          one.send_key = other.receive_key = there;
          one.receive_key = other.send_key = back;
        }
        all[a].push_back(std::move(one));
        all[b].push_back(std::move(other));
      }
    }
  return all;
}

/// Runs f(i) in `count` threads. \return what each threw.
template <class F>
std::vector<std::exception_ptr> in_threads(std::size_t count, const F& f) {
  std::vector<std::exception_ptr> errors(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        f(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// The meshes of all ranks in one process, with two channels and the connections of `connect_all`.
inline std::vector<std::shared_ptr<TcpMesh>> connect_meshes(std::size_t size) {
  auto connections = connect_all(size, Topology::direct, 2, false);
  std::vector<std::shared_ptr<TcpMesh>> meshes;
  for (std::size_t r = 0; r < size; ++r)
    meshes.push_back(std::make_shared<TcpMesh>(
        TcpMesh::Options{.rank = r, .size = size, .topology = Topology::direct},
        std::move(connections[r])));
  return meshes;
}

/// All members of a group in one process: a maker for the contract of collectives.
template <SumOrder sum_order, Topology topology, bool sealed, std::size_t stripes = 1,
          int spins = 0>
class Places {
 public:
  static constexpr std::size_t max_size = 8;
  static constexpr SumOrder order = sum_order;
  static constexpr bool can_end = true;

  Places(std::size_t size, std::chrono::milliseconds timeout) {
    auto connections = connect_all(size, topology, stripes, sealed);
    for (std::size_t r = 0; r < size; ++r) {
      meshes.push_back(std::make_shared<TcpMesh>(
          TcpMesh::Options{.rank = r, .size = size, .channels = 1, .topology = topology},
          std::move(connections[r])));
      members_.emplace_back(meshes[r],
                            TcpGroup::Options{.timeout = timeout, .order = order, .spins = spins});
    }
  }
  std::size_t size() const { return members_.size(); }
  TcpGroup& member(std::size_t rank) { return members_[rank]; }

  std::vector<std::shared_ptr<TcpMesh>> meshes;

 private:
  std::vector<TcpGroup> members_;
};

}  // namespace tcp_test
