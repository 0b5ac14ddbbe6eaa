#pragma once

#include "lockstep/training/asynchronous/push_server.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process/threads.hpp"

namespace lockstep::detail {

/// A client waits no longer for a step or a record, so that its process can show that it lives.
inline constexpr std::chrono::milliseconds longest_answer{100};

PushServer::PushServer(const PhaseShape& shape, Pairs& pairs, std::size_t rank, std::size_t first,
                       std::span<std::byte> weights, std::span<std::byte> state)
    : shape_(shape),
      rank_(rank),
      weights_(weights),
      state_(state),
      tickets_(shape.steps, shape.staleness),
      is_applied_(static_cast<std::size_t>(shape.steps)) {
  if (rank != first)
    leader_.emplace(shape, pairs, rank, std::vector<PushClient::Server>{{first, {}}});
  for (auto& [other, group] : pairs) {
    if (!is_first() && other == first) continue;
    Client& client = *clients_.emplace_back(std::make_unique<Client>(Client{other, &group}));
    client.gradients.resize(weights.size());
    client.sent.resize(weights.size() + state.size());
    client.states.resize(is_first() ? 2 * state.size() : 0);
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
  const bool ended = [&] {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
    if (running_ > 0 && !error_)
      error_ = std::make_exception_ptr(CollectiveAborted("parameter server: the phase was left"));
    return running_ == 0;
  }();
  pushed_.notify_all();
  changed_.notify_all();
  if (!ended)
    for (const auto& client : clients_) client->group->abort();
  for (std::thread& thread : threads_) thread.join();
}

void PushServer::end_thread(std::exception_ptr error) {
  {
    const std::scoped_lock lock(mutex_);
    --running_;
    if (error && !error_) error_ = std::move(error);
  }
  pushed_.notify_all();
  changed_.notify_all();
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
      case PushRequest::Kind::pull:
        answer_pull(client);
        break;
      case PushRequest::Kind::push:
        answer_push(client, request);
        break;
      case PushRequest::Kind::end:
        return;
    }
  }
}

void PushServer::follow() {
  for (;;) {
    bool stops = false;
    {
      const std::scoped_lock lock(mutex_);
      if (error_) return;
      stops = stops_;
    }
    const PushReply reply = leader_->follow(stops);
    const std::vector<double> records = leader_->take_records();
    {
      const std::scoped_lock lock(mutex_);
      records_.insert(records_.end(), records.begin(), records.end());
    }
    pushed_.notify_all();
    if (reply.kind == PushReply::Kind::done) return leader_->end();
  }
}

void PushServer::answer_next(Client& client, const PushRequest& request) {
  PushReply reply;
  std::vector<double> records;
  {
    std::unique_lock lock(mutex_);
    if (request.step != PushRequest::none) {
      tickets_.finish(request.step);
      changed_.notify_all();
    }
    if (request.stops != 0 && !std::exchange(stops_, true)) {
      tickets_.stop();
      changed_.notify_all();
    }
    const auto known = static_cast<std::size_t>(request.known) * shape_.record;
    changed_.wait_for(lock, longest_answer, [&] {
      if (error_) return true;
      if (tickets_.is_done()) {
        reply.kind = PushReply::Kind::done;
        return true;
      }
      if (request.kind == PushRequest::Kind::follow) return records_.size() > known;
      const auto step = tickets_.grant(client.rank);
      if (!step) return false;
      reply.kind = PushReply::Kind::step;
      reply.step = *step;
      return true;
    });
    records.assign(records_.begin() + static_cast<std::ptrdiff_t>(known), records_.end());
    reply.records = records.size() / std::max<std::size_t>(shape_.record, 1);
  }
  client.group->broadcast(&reply, 1, here(client));
  if (reply.records > 0) client.group->broadcast(records.data(), records.size(), here(client));
}

void PushServer::answer_pull(Client& client) {
  {
    const std::scoped_lock lock(updates_);
    std::copy(weights_.begin(), weights_.end(), client.sent.begin());
    std::copy(state_.begin(), state_.end(),
              client.sent.begin() + static_cast<std::ptrdiff_t>(weights_.size()));
    client.pulled = applied_;
  }
  client.group->broadcast(client.sent.data(), weights_.size(), here(client));
  if (is_first() && !state_.empty())
    client.group->broadcast(client.sent.data() + weights_.size(), state_.size(), here(client));
}

void PushServer::answer_push(Client& client, const PushRequest& request) {
  const std::size_t from = 1 - here(client);
  client.group->broadcast(client.gradients.data(), client.gradients.size(), from);
  client.group->broadcast(client.record.data(), client.record.size(), from);
  if (!client.states.empty())
    client.group->broadcast(client.states.data(), client.states.size(), from);
  PushReceipt receipt;
  {
    std::unique_lock lock(mutex_);
    if (request.step >= shape_.steps)
      throw Error("parameter server: rank {} pushed step {} of a phase of {}", client.rank,
                  request.step, shape_.steps);
    client.step = request.step;
    client.squares = request.squares;
    client.is_pushed = true;
    queue_.push_back(&client);
    pushed_.notify_all();
    changed_.wait(lock, [&] { return !client.is_pushed || error_; });
    if (client.is_pushed) return;  // the phase has failed; the group's error comes next
    receipt = {client.is_applied ? 1U : 0U, stops_ ? 1U : 0U};
  }
  client.group->broadcast(&receipt, 1, here(client));
}

void PushServer::apply_push(Client& client, FunctionRef<void(const Push&)> apply) {
  bool is_new = false;
  {
    const std::scoped_lock lock(mutex_);
    is_new = !is_applied_[static_cast<std::size_t>(client.step)];
    is_applied_[static_cast<std::size_t>(client.step)] = true;
    if (!is_new) ++refused_;
  }
  if (is_new) {
    const std::scoped_lock lock(updates_);
    const std::uint64_t staleness = applied_ - client.pulled;
    most_stale_ = std::max(most_stale_, staleness);
    apply({.gradients = client.gradients.data(),
           .record = client.record.data(),
           .state = client.states.empty() ? nullptr : client.states.data(),
           .pulled = client.states.empty() ? nullptr : client.states.data() + state_.size(),
           .staleness = staleness,
           .squares = client.squares});
    ++applied_;
  }
  {
    const std::scoped_lock lock(mutex_);
    if (is_new && is_first())
      records_.insert(records_.end(), client.record.begin(), client.record.end());
    client.is_applied = is_new;
    client.is_pushed = false;
  }
  changed_.notify_all();
}

bool PushServer::serve(FunctionRef<void(const Push&)> apply, std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool comes =
        pushed_.wait_until(lock, until, [&] { return !queue_.empty() || running_ == 0 || error_; });
    if (error_) std::rethrow_exception(error_);
    if (!comes || queue_.empty()) return running_ > 0 || records_.size() > taken_;
    Client* const client = queue_.front();
    queue_.erase(queue_.begin());
    lock.unlock();
    apply_push(*client, apply);
    lock.lock();
    if (records_.size() > taken_) return true;
  }
}

std::vector<double> PushServer::take_records() {
  const std::scoped_lock lock(mutex_);
  std::vector<double> taken(records_.begin() + static_cast<std::ptrdiff_t>(taken_), records_.end());
  taken_ = records_.size();
  return taken;
}

void PushServer::stop() {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(stops_, true)) return;
    if (is_first()) tickets_.stop();
  }
  changed_.notify_all();
}

bool PushServer::are_complete() const {
  const auto made = static_cast<std::ptrdiff_t>(applied_);
  return std::all_of(is_applied_.begin(), is_applied_.begin() + made, [](bool is) { return is; });
}

}  // namespace lockstep::detail
