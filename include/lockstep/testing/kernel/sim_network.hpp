/// \file
/// The network between simulated machines, with its faults. Invariants: packets from one socket
/// arrive in the order in which they were sent; what is sent, or on its way, while two machines are
/// cut off from each other is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/testing/kernel/sim_time.hpp"

namespace lockstep::testing::detail {

class SimSocket;
struct SimProcess;

/// An IPv4 address and a port, in the host's byte order.
struct SimAddress {
  std::uint32_t ip = 0;
  std::uint16_t port = 0;
  bool operator==(const SimAddress&) const = default;
  auto operator<=>(const SimAddress&) const = default;
};

/// The network between the machines, with its faults.
class SimNetwork {
 public:
  struct Options {
    SimTime latency = 50 * microsecond, jitter = 0;
    double bytes_per_second = 0;  ///< of each network card; 0: not limited
    double loss = 0;              ///< of each segment
  };
  SimNetwork(const Options& options, std::size_t machines);

  static std::uint32_t address_of(std::size_t rank);
  /// The rank of an address as `from` sees it; the number of machines if there is none.
  std::size_t machine_of(std::uint32_t ip, std::size_t from) const;
  std::size_t size() const { return size_; }
  bool is_cut(std::size_t a, std::size_t b) const { return a != b && cut_[a * size() + b]; }
  void cut(std::size_t from, std::size_t to, bool value) { cut_[from * size() + to] = value; }
  void heal() { cut_.assign(cut_.size(), false); }
  bool is_perfect(std::size_t a, std::size_t b) const {
    return options_.loss == 0 && !is_cut(a, b) && !is_cut(b, a);
  }
  Options& options() { return options_; }

  /// Sends a packet to `to`, unless it is lost.
  void deliver(SimSocket& from, SimSocket& to, std::uint32_t kind, std::uint64_t a, std::uint64_t b,
               std::size_t bytes);
  /// An answer of a machine on which nobody listens.
  void deliver_back(SimSocket& to, std::uint32_t kind);
  std::shared_ptr<SimSocket> open(SimProcess& owner);
  std::shared_ptr<SimSocket> shared(SimSocket& socket) const { return sockets_.at(&socket); }
  SimSocket* listener_at(std::size_t machine, SimAddress address);
  /// Sockets may have the same address if all of them allow it (SO_REUSEADDR) and none listens.
  int claim(SimSocket& socket, SimAddress& address);
  /// Whether another socket listens at the address of this one.
  bool is_listened_at(const SimSocket& socket) const;
  void release(SimSocket& socket);
  std::uint64_t packets = 0, lost = 0;

 private:
  Options options_;
  std::size_t size_;
  std::vector<bool> cut_;
  std::map<SimSocket*, std::shared_ptr<SimSocket>> sockets_;  // all, as packets refer to them
  std::map<std::pair<std::size_t, std::uint16_t>, std::vector<SimSocket*>> ports_;
};

}  // namespace lockstep::testing::detail
