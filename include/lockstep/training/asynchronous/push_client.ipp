#pragma once

#include "lockstep/training/asynchronous/push_client.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::detail {

PushClient::PushClient(const PhaseShape& shape, std::map<std::size_t, ProcessGroup>& pairs,
                       std::size_t rank, std::vector<Server> servers)
    : shape_(shape),
      pairs_(&pairs),
      rank_(rank),
      servers_(std::move(servers)),
      states_(2 * shape.state),
      parts_(servers_.size()) {}

PushReply PushClient::next(bool stops) {
  return ask({.kind = PushRequest::Kind::next,
              .stops = stops || stops_ ? 1U : 0U,
              .step = std::exchange(pushed_, PushRequest::none),
              .known = known_});
}

PushReply PushClient::follow(bool stops) {
  return ask({.kind = PushRequest::Kind::follow, .stops = stops ? 1U : 0U, .known = known_});
}

PushReply PushClient::ask(PushRequest request) {
  const Server& first = servers_.front();
  ProcessGroup& group = pair(first);
  PushReply reply;
  group.broadcast(&request, 1, here(first));
  group.broadcast(&reply, 1, 1 - here(first));
  const std::size_t before = records_.size();
  records_.resize(before + static_cast<std::size_t>(reply.count) * shape_.record);
  if (reply.count > 0)
    group.broadcast(records_.data() + before, records_.size() - before, 1 - here(first));
  known_ += reply.count;
  return reply;
}

PushReply PushClient::serve(bool stops, std::uint64_t applied, std::vector<std::uint64_t>& order) {
  const Server& first = servers_.front();
  ProcessGroup& group = pair(first);
  PushRequest request{.kind = PushRequest::Kind::serve, .stops = stops ? 1U : 0U, .known = applied};
  PushReply reply;
  group.broadcast(&request, 1, here(first));
  group.broadcast(&reply, 1, 1 - here(first));
  const std::size_t before = order.size();
  order.resize(before + static_cast<std::size_t>(reply.count));
  if (reply.count > 0)
    group.broadcast(order.data() + before, order.size() - before, 1 - here(first));
  return reply;
}

void PushClient::ask_for(std::size_t server, PushRequest request) {
  ProcessGroup& group = pair(servers_[server]);
  std::vector<Slice>& parts = parts_[server];
  request.parts = parts.size();
  group.broadcast(&request, 1, here(servers_[server]));
  if (!parts.empty()) group.broadcast(parts.data(), parts.size(), here(servers_[server]));
}

void PushClient::pull(std::byte* weights, std::span<std::byte> state) {
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    const Server& server = servers_[i];
    std::byte* const its = weights + server.range.first;
    ask_for(i, {.kind = PushRequest::Kind::pull});
    if (parts_[i].empty()) {
      pair(server).broadcast(its, server.range.count, 1 - here(server));
      continue;
    }
    packed_.resize(bytes_of(parts_[i]));
    pair(server).broadcast(packed_.data(), packed_.size(), 1 - here(server));
    unpack(parts_[i], packed_, its);
  }
  if (shape_.state == 0) return;
  const Server& first = servers_.front();
  pair(first).broadcast(state.data(), state.size(), 1 - here(first));
  std::copy(state.begin(), state.end(),
            states_.begin() + static_cast<std::ptrdiff_t>(shape_.state));
}

void PushClient::push(std::uint64_t step, const std::byte* gradients,
                      std::span<const double> squares, std::span<const double> record,
                      std::span<const std::byte> state) {
  std::copy(state.begin(), state.end(), states_.begin());
  double all = 0;
  for (const double part : squares) all += part;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    const Server& server = servers_[i];
    ProcessGroup& group = pair(server);
    const std::byte* const its = gradients + server.range.first;
    PushRequest request{.kind = PushRequest::Kind::push, .step = step};
    if (!squares.empty()) request.squares = all - squares[i];
    ask_for(i, request);
    // A broadcast only reads the root's memory.
    if (parts_[i].empty()) {
      group.broadcast(const_cast<std::byte*>(its), server.range.count, here(server));
    } else {
      packed_.resize(bytes_of(parts_[i]));
      pack(parts_[i], its, packed_);
      group.broadcast(packed_.data(), packed_.size(), here(server));
    }
    group.broadcast(const_cast<double*>(record.data()), record.size(), here(server));
    if (i == 0 && shape_.state > 0) group.broadcast(states_.data(), states_.size(), here(server));
    PushReceipt receipt;
    group.broadcast(&receipt, 1, 1 - here(server));
    stops_ = stops_ || receipt.stops != 0;
  }
  pushed_ = step;
}

void PushClient::end() {
  PushRequest request{.kind = PushRequest::Kind::end};
  for (const Server& server : servers_) pair(server).broadcast(&request, 1, here(server));
}

void PushClient::abort() {
  for (const Server& server : servers_) pair(server).abort();
}

std::vector<double> PushClient::take_records() { return std::exchange(records_, {}); }

}  // namespace lockstep::detail
