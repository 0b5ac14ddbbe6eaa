#pragma once

#include "lockstep/testing/kernel/sim_network.hpp"

#include <algorithm>
#include <cerrno>

#include "lockstep/testing/kernel/scheduler.hpp"
#include "lockstep/testing/kernel/tcp_socket.hpp"

namespace lockstep::testing::detail {

namespace {

constexpr SimTime loopback_latency = 5 * microsecond;

}  // namespace

SimNetwork::SimNetwork(const Options& options, std::size_t machines)
    : options_(options), size_(machines), cut_(machines * machines) {}

std::uint32_t SimNetwork::address_of(std::size_t rank) {
  return 0x0a000001u + static_cast<std::uint32_t>(rank);
}

std::size_t SimNetwork::machine_of(std::uint32_t ip, std::size_t from) const {
  if (ip >> 24 == 127 || ip == 0) return from;
  const std::size_t rank = ip - 0x0a000001u;
  return ip >= 0x0a000001u && rank < size() ? rank : size();
}

std::shared_ptr<SimSocket> SimNetwork::open(SimProcess& owner) {
  auto socket = std::make_shared<SimSocket>(owner, *this);
  sockets_[socket.get()] = socket;
  return socket;
}

void SimNetwork::deliver(SimSocket& from, SimSocket& to, std::uint32_t kind, std::uint64_t a,
                         std::uint64_t b, std::size_t bytes) {
  ++packets;
  const std::size_t far = machine_of(from.remote_.ip, from.machine_);
  if (far == size()) return;
  SimTime departs = scheduler->now();
  if (this_thread != nullptr && this_thread->process->rank == from.machine_ &&
      this_thread->state == SimThread::State::running)
    departs += this_thread->debt;
  SimTime arrives = departs + loopback_latency;
  if (far != from.machine_) {
    SimMachine& machine = scheduler->machine(from.machine_);
    if (options_.bytes_per_second > 0) {
      departs = std::max(departs, machine.link_free) +
                static_cast<SimTime>(static_cast<double>(bytes) * 1e9 / options_.bytes_per_second);
      machine.link_free = departs;
    }
    const bool dropped = options_.loss > 0 && scheduler->random().unit() < options_.loss;
    if (dropped || is_cut(from.machine_, far)) {
      ++lost;
      return;
    }
    arrives = departs + options_.latency;
    if (options_.jitter > 0)
      arrives += static_cast<SimTime>(
          scheduler->random().below(static_cast<std::uint64_t>(options_.jitter)));
  }
  arrives = from.last_arrival_ = std::max(arrives, from.last_arrival_);
  scheduler->schedule(arrives, to, kind, a, b);
}

void SimNetwork::deliver_back(SimSocket& to, std::uint32_t kind) {
  const std::size_t far = machine_of(to.remote_.ip, to.machine_);
  if (is_cut(far, to.machine_)) return;
  scheduler->schedule(scheduler->now() + (far == to.machine_ ? loopback_latency : options_.latency),
                      to, kind);
}

SimSocket* SimNetwork::listener_at(std::size_t machine, SimAddress address) {
  const auto found = ports_.find({machine, address.port});
  if (found == ports_.end()) return nullptr;
  for (SimSocket* socket : found->second)
    if (socket->state_ == SimSocket::State::listening &&
        (socket->local_.ip == 0 || socket->local_.ip == address.ip))
      return socket;
  return nullptr;
}

int SimNetwork::claim(SimSocket& socket, SimAddress& address) {
  if (address.port == 0) {
    std::uint16_t& next = scheduler->machine(socket.machine_).next_port;
    for (int tries = 0; tries < 28'000 && address.port == 0; ++tries) {
      const std::uint16_t port = next;
      next = next == 60'999 ? std::uint16_t{32'768} : static_cast<std::uint16_t>(next + 1);
      if (!ports_.contains({socket.machine_, port})) address.port = port;
    }
    if (address.port == 0) return -EADDRINUSE;
  }
  auto& users = ports_[{socket.machine_, address.port}];
  for (const SimSocket* user : users) {
    const bool share =
        socket.reuses_ && user->reuses_ && user->state_ != SimSocket::State::listening;
    if (!share && (user->local_.ip == address.ip || user->local_.ip == 0 || address.ip == 0))
      return -EADDRINUSE;
  }
  users.push_back(&socket);
  return 0;
}

bool SimNetwork::is_listened_at(const SimSocket& socket) const {
  const auto found = ports_.find({socket.machine_, socket.local_.port});
  if (found == ports_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&](const SimSocket* user) {
    return user != &socket && user->state_ == SimSocket::State::listening &&
           (user->local_.ip == socket.local_.ip || user->local_.ip == 0 || socket.local_.ip == 0);
  });
}

void SimNetwork::release(SimSocket& socket) {
  const auto found = ports_.find({socket.machine_, socket.local_.port});
  if (found == ports_.end()) return;
  std::erase(found->second, &socket);
  if (found->second.empty()) ports_.erase(found);
}

}  // namespace lockstep::testing::detail
