#pragma once

#include "lockstep/training/asynchronous/push_server.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process/threads.hpp"

namespace lockstep::detail {

/// A client waits no longer for a step or a record, so that its process can show that it lives.
inline constexpr std::chrono::milliseconds longest_answer{100};

PushServer::PushServer(const PhaseShape& shape, Pairs& pairs, std::size_t rank, Slice servers,
                       ServedWeights owned, std::span<std::byte> weights,
                       std::span<std::byte> state)
    : shape_(shape),
      rank_(rank),
      servers_(servers),
      owned_(std::move(owned)),
      weights_(weights),
      state_(state),
      tickets_(shape.steps, shape.staleness, shape.made),
      made_by_(servers.count) {
  if (rank != servers.first)
    leader_.emplace(shape, pairs, rank, std::vector<PushClient::Server>{{servers.first}});
  for (auto& [other, group] : pairs) {
    if (!is_first() && other == servers.first) continue;
    Client& client = *clients_.emplace_back(std::make_unique<Client>(Client{other, &group}));
    client.gradients.resize(packed_size(owned_.pushed));
    client.sent.resize(owned_.pulled.count + state.size());
    client.states.resize(2 * state.size());
    client.record.resize(shape.record);
  }
}

void PushServer::start() {
  for (const auto& client : clients_) start_thread([this, at = client.get()] { run(*at); });
  if (leader_) start_thread([this] { follow(); });
}

void PushServer::start_thread(std::function<void()> body) {
  const std::scoped_lock lock(mutex_);
  threads_.push_back(detail::start_thread("parameter server", [this, body = std::move(body)] {
    std::exception_ptr error;
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
    end_thread(std::move(error));
  }));
  ++running_;  // the thread needs the mutex to end
}

PushServer::~PushServer() {
  const bool have_ended = [&] {
    const std::scoped_lock lock(mutex_);
    if (running_ > 0 && !error_)
      error_ = std::make_exception_ptr(CollectiveAborted("parameter server: the phase was left"));
    return running_ == 0;
  }();
  wake();
  if (!have_ended) {
    for (const auto& client : clients_) client->group->abort();
    if (leader_) leader_->abort();
  }
  for (std::thread& thread : threads_) thread.join();
}

void PushServer::wake() {
  changed_.notify_all();
  decided_.notify_all();
}

void PushServer::end_thread(std::exception_ptr error) {
  {
    const std::scoped_lock lock(mutex_);
    --running_;
    if (error && !error_) error_ = std::move(error);
  }
  wake();
}

void PushServer::run(Client& client) {
  for (;;) {
    PushRequest request;
    client.group->broadcast(&request, 1, 1 - here(client));
    switch (request.kind) {
      case PushRequest::Kind::next:
      case PushRequest::Kind::follow:
        answer_next(client, request);
        break;
      case PushRequest::Kind::serve:
        answer_serve(client, request);
        break;
      case PushRequest::Kind::pull:
        answer_pull(client, request);
        break;
      case PushRequest::Kind::push:
        if (!answer_push(client, request)) return;
        break;
      case PushRequest::Kind::end:
        return;
      default:
        throw Error("parameter server: rank {} sent a request of the unknown kind {}", client.rank,
                    static_cast<std::uint32_t>(request.kind));
    }
  }
}

void PushServer::follow() {
  std::vector<std::uint64_t> next;
  for (;;) {
    bool stops = false;
    std::uint64_t applied = 0;
    {
      // The next update is decided after this server has made the last one.
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return applied_ == order_.size() || error_; });
      if (error_) return;
      stops = stops_;
      applied = applied_;
    }
    next.clear();
    const PushReply reply = leader_->serve(stops, applied, next);
    {
      const std::scoped_lock lock(mutex_);
      order_.insert(order_.end(), next.begin(), next.end());
      finished_ = reply.finished;
    }
    wake();
    if (reply.kind == PushReply::Kind::done) return leader_->end();
  }
}

void PushServer::check(const Client& client, bool is_possible) {
  if (!is_possible)
    throw Error("parameter server: rank {} sent numbers that are not of this phase of {} steps",
                client.rank, shape_.steps);
}

void PushServer::heed(bool stops) {
  if (!stops || std::exchange(stops_, true)) return;
  tickets_.stop();
  changed_.notify_all();
}

void PushServer::decide() {
  made_by_[0] = applied_;
  const std::uint64_t finished = *std::min_element(made_by_.begin(), made_by_.end());
  if (finished == finished_ && finished < order_.size()) return;
  for (; finished_ < finished; ++finished_) tickets_.finish(order_[finished_]);
  if (finished_ == order_.size() && !pushed_.empty()) {
    order_.push_back(pushed_.front());
    pushed_.pop_front();
  }
  wake();
}

void PushServer::answer_next(Client& client, const PushRequest& request) {
  PushReply reply;
  std::vector<double> records;
  {
    std::unique_lock lock(mutex_);
    check(client, is_first() && request.known <= finished_ &&
                      (request.step == PushRequest::none || request.step < shape_.steps));
    heed(request.stops != 0);
    if (request.step != PushRequest::none) {
      pushed_.push_back(request.step);
      decide();
    }
    changed_.wait_for(lock, longest_answer, [&] {
      if (error_) return true;
      if (tickets_.is_done()) {
        reply.kind = PushReply::Kind::done;
        return true;
      }
      if (request.kind == PushRequest::Kind::follow) return finished_ > request.known;
      const auto step = tickets_.grant();
      if (!step) return false;
      reply.kind = PushReply::Kind::step;
      reply.step = *step;
      return true;
    });
    const auto at = [&](std::uint64_t record) {
      return records_.begin() + static_cast<std::ptrdiff_t>(record * shape_.record);
    };
    reply.finished = finished_;
    reply.count = finished_ - request.known;
    records.assign(at(request.known), at(finished_));
  }
  client.group->broadcast(&reply, 1, here(client));
  if (reply.count > 0) client.group->broadcast(records.data(), records.size(), here(client));
}

void PushServer::answer_serve(Client& client, const PushRequest& request) {
  PushReply reply;
  std::vector<std::uint64_t> next;
  {
    std::unique_lock lock(mutex_);
    check(client, is_first() && servers_.contains(client.rank) && request.known <= order_.size());
    heed(request.stops != 0);
    made_by_[client.rank - servers_.first] = request.known;
    decide();
    changed_.wait_for(lock, longest_answer, [&] {
      return error_ || tickets_.is_done() || order_.size() > request.known;
    });
    if (tickets_.is_done()) reply.kind = PushReply::Kind::done;
    next.assign(order_.begin() + static_cast<std::ptrdiff_t>(request.known), order_.end());
    reply.count = next.size();
    reply.finished = finished_;
  }
  client.group->broadcast(&reply, 1, here(client));
  if (reply.count > 0) client.group->broadcast(next.data(), next.size(), here(client));
}

void PushServer::receive_parts(Client& client, const PushRequest& request,
                               std::span<const Slice> owned, std::vector<Slice>& parts) {
  if (request.parts == 0) return parts.assign(owned.begin(), owned.end());
  if (request.parts > weights_.size() + 1)
    throw Error("parameter server: rank {} names {} parts of {} bytes", client.rank, request.parts,
                weights_.size());
  parts.resize(static_cast<std::size_t>(request.parts));
  client.group->broadcast(parts.data(), parts.size(), 1 - here(client));
  std::size_t end = 0;
  for (const Slice& part : parts) {
    const bool is_owned =
        part.count == 0 || std::any_of(owned.begin(), owned.end(), [&](const Slice& range) {
          return part.first >= range.first && part.count <= range.count &&
                 part.first - range.first <= range.count - part.count;
        });
    const bool is_aligned = part.first % shape_.element == 0 && part.count % shape_.element == 0;
    if (!is_owned || !is_aligned || (part.count > 0 && part.first < end))
      throw Error("parameter server: rank {} names the bytes {} to {}, which are not this server's",
                  client.rank, part.first, part.first + part.count);
    end = std::max(end, part.first + part.count);
  }
}

void PushServer::answer_pull(Client& client, const PushRequest& request) {
  const std::vector<Slice>& parts = client.pulled_parts;
  receive_parts(client, request, {&owned_.pulled, 1}, client.pulled_parts);
  const std::size_t size = packed_size(parts);
  std::uint64_t seen = 0;
  {
    const std::scoped_lock lock(updates_);
    pack(parts, weights_.data(), client.sent);
    std::copy(state_.begin(), state_.end(),
              client.sent.begin() + static_cast<std::ptrdiff_t>(size));
    seen = client.pulled = applied_;
  }
  client.group->broadcast(client.sent.data(), size, here(client));
  if (!is_first() || state_.empty()) return;
  client.group->broadcast(client.sent.data() + size, state_.size(), here(client));
  client.group->broadcast(&seen, 1, here(client));
}

bool PushServer::answer_push(Client& client, const PushRequest& request) {
  const std::size_t from = 1 - here(client);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !client.is_kept || error_; });
    if (client.is_kept) return false;
  }
  receive_parts(client, request, owned_.pushed, client.parts);
  client.is_whole = request.parts == 0;
  client.group->broadcast(client.gradients.data(), packed_size(client.parts), from);
  client.group->broadcast(client.record.data(), client.record.size(), from);
  if (!client.states.empty())
    client.group->broadcast(client.states.data(), client.states.size(), from);
  PushReceipt receipt;
  {
    const std::scoped_lock lock(mutex_);
    check(client, request.step < shape_.steps);
    client.step = request.step;
    client.state_seen = request.known;
    client.seen = client.pulled;
    client.squares = request.squares;
    client.is_kept = true;
    receipt.stops = stops_ ? 1 : 0;
  }
  client.group->broadcast(&receipt, 1, here(client));
  return true;
}

auto PushServer::client_with(std::uint64_t step) -> Client& {
  for (const auto& client : clients_)
    if (client->is_kept && client->step == step) return *client;
  throw Error("parameter server: step {} is due, but no worker has sent its gradients", step);
}

void PushServer::apply(Client& client, FunctionRef<void(const Push&)> update) {
  const std::scoped_lock lock(updates_);
  most_stale_ = std::max(most_stale_, applied_ - client.seen);
  update({.gradients = client.gradients.data(),
          .parts = client.parts,
          .is_whole = client.is_whole,
          .state = client.states.data(),
          .pulled = client.states.data() + state_.size(),
          .is_next = applied_ == client.state_seen,
          .squares = client.squares});
  const std::scoped_lock counted(mutex_);
  ++applied_;
  records_.insert(records_.end(), client.record.begin(), client.record.end());
  client.is_kept = false;
  if (is_first()) decide();
  wake();
}

bool PushServer::serve(FunctionRef<void(const Push&)> update, std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool has_next = decided_.wait_until(lock, until, [&] {
      return order_.size() > applied_ || finished_ > taken_ || running_ == 0 || error_;
    });
    if (error_) std::rethrow_exception(error_);
    if (finished_ > taken_ || !has_next) return true;
    if (order_.size() == applied_) return false;
    Client& client = client_with(order_[applied_]);
    lock.unlock();
    apply(client, update);
    lock.lock();
  }
}

std::vector<double> PushServer::take_records() {
  const std::scoped_lock lock(mutex_);
  const auto at = [&](std::uint64_t record) {
    return records_.begin() + static_cast<std::ptrdiff_t>(record * shape_.record);
  };
  std::vector<double> taken(at(taken_), at(finished_));
  taken_ = finished_;
  return taken;
}

void PushServer::stop() {
  const std::scoped_lock lock(mutex_);
  if (is_first())
    heed(true);
  else
    stops_ = true;
}

}  // namespace lockstep::detail
