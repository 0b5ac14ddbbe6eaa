#pragma once

#include "lockstep/training/asynchronous/push_client.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/training/asynchronous/touched_rows.hpp"

namespace lockstep::detail {

PushClient::PushClient(const PhaseShape& shape, std::map<std::size_t, ProcessGroup>& pairs,
                       std::size_t rank, std::vector<Server> servers)
    : shape_(shape),
      pairs_(&pairs),
      rank_(rank),
      servers_(std::move(servers)),
      states_(shape.pushed_state()) {}

PushReply PushClient::next(bool stops) {
  const PushReply reply = ask({.kind = PushRequest::Kind::next,
                               .stops = stops || stops_ ? 1U : 0U,
                               .step = std::exchange(pushed_, PushRequest::none),
                               .slice = slice_,
                               .known = known_});
  slice_ = reply.slice;
  return reply;
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
  check(reply);
  const std::size_t before = records_.size();
  records_.resize(before + static_cast<std::size_t>(reply.count) * shape_.step_record());
  if (reply.count > 0)
    group.broadcast(records_.data() + before, records_.size() - before, 1 - here(first));
  known_ += reply.count;
  return reply;
}

void PushClient::check(const PushReply& reply) const {
  if (reply.count > shape_.steps || reply.step >= std::max<std::uint64_t>(shape_.steps, 1) ||
      reply.slice >= shape_.slices)
    throw Error(
        "parameter server: rank {} names slice {} of step {} and {} records of a phase of {} steps",
        servers_.front().rank, reply.slice, reply.step, reply.count, shape_.steps);
}

PushReply PushClient::serve(bool stops, std::uint64_t applied, std::vector<std::uint64_t>& order) {
  const Server& first = servers_.front();
  ProcessGroup& group = pair(first);
  PushRequest request{.kind = PushRequest::Kind::serve, .stops = stops ? 1U : 0U, .known = applied};
  PushReply reply;
  group.broadcast(&request, 1, here(first));
  group.broadcast(&reply, 1, 1 - here(first));
  check(reply);
  const std::size_t before = order.size();
  order.resize(before + static_cast<std::size_t>(reply.count) * (1 + shape_.slices));
  if (reply.count > 0)
    group.broadcast(order.data() + before, order.size() - before, 1 - here(first));
  return reply;
}

void PushClient::sum(std::span<double> values) {
  const Server& first = servers_.front();
  PushRequest request{.kind = PushRequest::Kind::sum};
  pair(first).broadcast(&request, 1, here(first));
  pair(first).broadcast(values.data(), values.size(), here(first));
  pair(first).broadcast(values.data(), values.size(), 1 - here(first));
}

void PushClient::ask_for(const Server& server, PushRequest request, std::span<const Slice> range) {
  ProcessGroup& group = pair(server);
  if (touched_.empty()) {
    parts_.assign(range.begin(), range.end());
    return group.broadcast(&request, 1, here(server));
  }
  touched_within(touched_, range, parts_);
  request.parts = parts_.size();
  group.broadcast(&request, 1, here(server));
  group.broadcast(parts_.data(), parts_.size(), here(server));
}

void PushClient::pull(std::byte* weights, std::span<std::byte> state) {
  for (const Server& server : servers_) {
    ask_for(server, {.kind = PushRequest::Kind::pull}, {&server.weights.pulled, 1});
    if (parts_.size() == 1) {
      pair(server).broadcast(weights + parts_[0].first, parts_[0].count, 1 - here(server));
      continue;
    }
    packed_.resize(packed_size(parts_));
    pair(server).broadcast(packed_.data(), packed_.size(), 1 - here(server));
    unpack(parts_, packed_, weights);
  }
  if (shape_.state == 0) return;
  const Server& first = servers_.front();
  pair(first).broadcast(state.data(), state.size(), 1 - here(first));
  pair(first).broadcast(&state_seen_, 1, 1 - here(first));
  if (shape_.slices == 1)
    std::copy(state.begin(), state.end(),
              states_.begin() + static_cast<std::ptrdiff_t>(shape_.state));
}

void PushClient::push(std::uint64_t step, const std::byte* gradients,
                      std::span<const double> record, std::span<const std::byte> state) {
  std::copy(state.begin(), state.end(), states_.begin());
  for (const Server& server : servers_) {
    ProcessGroup& group = pair(server);
    ask_for(server,
            {.kind = PushRequest::Kind::push, .step = step, .slice = slice_, .known = state_seen_},
            server.weights.pushed);
    // A broadcast only reads the root's memory.
    if (parts_.size() == 1) {
      group.broadcast(const_cast<std::byte*>(gradients) + parts_[0].first, parts_[0].count,
                      here(server));
    } else {
      packed_.resize(packed_size(parts_));
      pack(parts_, gradients, packed_);
      group.broadcast(packed_.data(), packed_.size(), here(server));
    }
    group.broadcast(const_cast<double*>(record.data()), record.size(), here(server));
    if (!states_.empty()) group.broadcast(states_.data(), states_.size(), here(server));
    PushReceipt receipt;
    group.broadcast(&receipt, 1, 1 - here(server));
    stops_ = stops_ || receipt.stops != 0;
    if (receipt.is_late != 0) break;  // no server needs it
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
