#pragma once

#include "lockstep/training/asynchronous/push_client.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/training/asynchronous/touched_rows.hpp"

namespace lockstep::detail {

PushClient::PushClient(const PhaseShape& shape, std::map<std::size_t, ProcessGroup>& pairs,
                       std::vector<Server> servers)
    : shape_(shape), pairs_(&pairs), servers_(std::move(servers)), states_(shape.pushed_state()) {}

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
  group.send(&request, 1);
  group.receive(&reply, 1);
  check(reply);
  const std::size_t before = records_.size();
  records_.resize(before + static_cast<std::size_t>(reply.count) * shape_.step_record());
  if (reply.count > 0) group.receive(records_.data() + before, records_.size() - before);
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
  group.send(&request, 1);
  group.receive(&reply, 1);
  check(reply);
  const std::size_t before = order.size();
  order.resize(before + static_cast<std::size_t>(reply.count) * (1 + shape_.slices));
  if (reply.count > 0) group.receive(order.data() + before, order.size() - before);
  return reply;
}

void PushClient::sum(std::span<double> values) {
  const Server& first = servers_.front();
  PushRequest request{.kind = PushRequest::Kind::sum};
  pair(first).send(&request, 1);
  pair(first).send(values.data(), values.size());
  pair(first).receive(values.data(), values.size());
}

void PushClient::ask_for(const Server& server, PushRequest request, std::span<const Slice> range) {
  ProcessGroup& group = pair(server);
  if (placed_ == nullptr && touched_.empty()) {
    places_.assign(range.begin(), range.end());
    parts_ = places_;
    return group.send(&request, 1);
  }
  if (placed_ != nullptr) {
    touched_within(*placed_, range, parts_, places_);
  } else {
    touched_within(touched_, range, parts_);
    places_ = parts_;
  }
  request.parts = parts_.size();
  group.send(&request, 1);
  group.send(parts_.data(), parts_.size());
}

void PushClient::pull(std::byte* weights, std::span<std::byte> state) {
  for (const Server& server : servers_) {
    ask_for(server, {.kind = PushRequest::Kind::pull}, {&server.weights.pulled, 1});
    if (parts_.size() == 1) {
      pair(server).receive(weights + places_[0].first, places_[0].count);
      continue;
    }
    packed_.resize(packed_size(parts_));
    pair(server).receive(packed_.data(), packed_.size());
    unpack(places_, packed_, weights);
  }
  if (shape_.state == 0) return;
  const Server& first = servers_.front();
  pair(first).receive(state.data(), state.size());
  pair(first).receive(&state_seen_, 1);
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
    if (parts_.size() == 1) {
      group.send(gradients + places_[0].first, places_[0].count);
    } else {
      packed_.resize(packed_size(parts_));
      pack(places_, gradients, packed_);
      group.send(packed_.data(), packed_.size());
    }
    group.send(record.data(), record.size());
    if (!states_.empty()) group.send(states_.data(), states_.size());
    PushReceipt receipt;
    group.receive(&receipt, 1);
    stops_ = stops_ || receipt.stops != 0;
    if (receipt.is_late != 0) break;  // no server needs it
  }
  pushed_ = step;
}

void PushClient::end() {
  PushRequest request{.kind = PushRequest::Kind::end};
  for (const Server& server : servers_) pair(server).send(&request, 1);
}

void PushClient::abort() {
  for (const Server& server : servers_) pair(server).abort();
}

std::vector<double> PushClient::take_records() { return std::exchange(records_, {}); }

}  // namespace lockstep::detail
