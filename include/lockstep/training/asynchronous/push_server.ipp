#pragma once

#include "lockstep/training/asynchronous/push_server.hpp"

#include <algorithm>
#include <iterator>
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
      servers_(servers),
      owned_(std::move(owned)),
      weights_(weights),
      state_(state),
      next_(shape.slices),
      tickets_(shape.steps, shape.staleness, shape.made, shape.slices, shape.copies),
      made_by_(servers.count) {
  if (rank != servers.first)
    leader_.emplace(shape, pairs, std::vector<PushClient::Server>{{servers.first}});
  for (auto& [other, group] : pairs) {
    if (!is_first() && other == servers.first) continue;
    clients_.push_back(std::make_unique<Client>(Client{other, &group}));
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
    return running_ == 0 && !error_;
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
    client.group->receive(&request, 1);
    switch (request.kind) {
      case PushRequest::Kind::next:
      case PushRequest::Kind::follow:
        answer_next(client, request);
        break;
      case PushRequest::Kind::serve:
        answer_serve(client, request);
        break;
      case PushRequest::Kind::sum:
        answer_sum(client);
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
      for (auto at = next.begin(); at != next.end();) {
        order_.push_back(*at++);
        for (std::size_t i = 0; i < shape_.slices; ++i) sources_.push_back(*at++);
      }
      if (reply.finished < finished_ || reply.finished > applied_)
        throw Error(
            "parameter server: rank {} names {} updates that all servers have made, after {}, of {} "
            "of this one",
            servers_.first, reply.finished, finished_, applied_);
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
    const auto at = accepted_.find(pushed_.front());
    order_.push_back(at->first);
    sources_.insert(sources_.end(), at->second.begin(), at->second.end());
    accepted_.erase(at);
    pushed_.pop_front();
  }
  wake();
}

void PushServer::accept(const Client& client, std::uint64_t step, std::uint64_t slice) {
  if (!tickets_.accept(step * shape_.slices + slice)) {
    check(client, shape_.copies > 0);  // only a copy comes too late
    return;
  }
  std::vector<std::uint64_t>& sources = accepted_[step];
  sources.resize(shape_.slices);
  sources[slice] = client.rank;
  changed_.notify_all();  // another slice may be copied
  if (!tickets_.is_accepted(step)) return;
  pushed_.push_back(step);
  decide();
}

void PushServer::answer_next(Client& client, const PushRequest& request) {
  PushReply reply;
  std::vector<double> records;
  {
    std::unique_lock lock(mutex_);
    check(client, is_first() && request.known <= finished_ &&
                      (request.step == PushRequest::none ||
                       (request.step < shape_.steps && request.slice < shape_.slices)));
    heed(request.stops != 0);
    if (request.step != PushRequest::none) accept(client, request.step, request.slice);
    changed_.wait_for(lock, longest_answer, [&] {
      if (error_) return true;
      if (tickets_.is_done()) {
        reply.kind = PushReply::Kind::done;
        return true;
      }
      if (request.kind == PushRequest::Kind::follow) return finished_ > request.known;
      const auto slice = tickets_.grant();
      if (!slice) return false;
      reply.kind = PushReply::Kind::step;
      reply.step = *slice / shape_.slices;
      reply.slice = static_cast<std::uint32_t>(*slice % shape_.slices);
      return true;
    });
    const auto at = [&](std::uint64_t record) {
      return records_.begin() + static_cast<std::ptrdiff_t>(record * shape_.step_record());
    };
    reply.finished = finished_;
    reply.count = finished_ - request.known;
    records.assign(at(request.known), at(finished_));
  }
  client.group->send(&reply, 1);
  if (reply.count > 0) client.group->send(records.data(), records.size());
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
    for (auto i = static_cast<std::size_t>(request.known); i < order_.size(); ++i) {
      next.push_back(order_[i]);
      const auto first = sources_.begin() + static_cast<std::ptrdiff_t>(i * shape_.slices);
      next.insert(next.end(), first, first + static_cast<std::ptrdiff_t>(shape_.slices));
    }
    reply.count = order_.size() - request.known;
    reply.finished = finished_;
  }
  client.group->send(&reply, 1);
  if (reply.count > 0) client.group->send(next.data(), next.size());
}

void PushServer::answer_sum(Client& client) {
  check(client, is_first() && servers_.contains(client.rank) && shape_.sums > 0);
  std::vector<double> values(shape_.sums);
  client.group->receive(values.data(), values.size());
  add(values);
  client.group->send(values.data(), values.size());
}

void PushServer::sum(std::span<double> values) {
  if (servers_.count == 1) return;
  // The thread that uses it otherwise waits for the end of this update.
  if (leader_) return leader_->sum(values);
  add(values);
}

void PushServer::add(std::span<double> values) {
  std::unique_lock lock(mutex_);
  // No server begins the next sum before all have made the update of this one.
  if (added_ % servers_.count == 0) sums_.assign(values.size(), 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) sums_[i] += values[i];
  const std::uint64_t all = (added_++ / servers_.count + 1) * servers_.count;
  changed_.notify_all();
  changed_.wait(lock, [&] { return added_ >= all || error_; });
  if (added_ < all) std::rethrow_exception(error_);
  std::copy(sums_.begin(), sums_.end(), values.begin());
}

void PushServer::receive_parts(Client& client, const PushRequest& request,
                               std::span<const Slice> owned, std::vector<Slice>& parts) {
  if (request.parts == 0) return parts.assign(owned.begin(), owned.end());
  if (request.parts > weights_.size() + 1)
    throw Error("parameter server: rank {} names {} parts of {} bytes", client.rank, request.parts,
                weights_.size());
  parts.resize(static_cast<std::size_t>(request.parts));
  client.group->receive(parts.data(), parts.size());
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
    client.sent.resize(size + state_.size());
    pack(parts, weights_.data(), client.sent);
    std::copy(state_.begin(), state_.end(),
              client.sent.begin() + static_cast<std::ptrdiff_t>(size));
    seen = client.pulled = applied_;
  }
  client.group->send(client.sent.data(), size);
  if (!is_first() || state_.empty()) return;
  client.group->send(client.sent.data() + size, state_.size());
  client.group->send(&seen, 1);
}

auto PushServer::unused_kept() -> std::unique_ptr<Kept> {
  if (!unused_.empty()) {
    std::unique_ptr<Kept> memory = std::move(unused_.back());
    unused_.pop_back();
    return memory;
  }
  auto memory = std::make_unique<Kept>();
  memory->states.resize(state_.empty() ? 0 : shape_.pushed_state());
  memory->record.resize(shape_.record);
  return memory;
}

bool PushServer::is_late(const Kept& push) const {
  if (shape_.copies == 0) return false;
  if (is_first()) return !tickets_.needs(push.step * shape_.slices + push.slice);
  return applied_ > 0 && push.step <= order_[applied_ - 1];  // steps with copies ascend
}

bool PushServer::answer_push(Client& client, const PushRequest& request) {
  std::unique_ptr<Kept> push;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return client.kept.size() < shape_.slices || error_; });
    if (client.kept.size() == shape_.slices) return false;
    push = unused_kept();
  }
  receive_parts(client, request, owned_.pushed, push->parts);
  push->is_whole = request.parts == 0;
  push->gradients.resize(packed_size(push->parts));
  client.group->receive(push->gradients.data(), push->gradients.size());
  client.group->receive(push->record.data(), push->record.size());
  if (!push->states.empty()) client.group->receive(push->states.data(), push->states.size());
  PushReceipt receipt;
  {
    const std::scoped_lock lock(mutex_);
    check(client, request.step < shape_.steps && request.slice < shape_.slices &&
                      push->record[0] == static_cast<double>(request.step) &&
                      (!is_first() || tickets_.has_begun(request.step)));
    push->step = request.step;
    push->slice = request.slice;
    push->state_seen = request.known;
    push->seen = client.pulled;
    receipt.is_late = is_late(*push) ? 1 : 0;
    receipt.stops = stops_ ? 1 : 0;
    (receipt.is_late != 0 ? unused_ : client.kept).push_back(std::move(push));
  }
  client.group->send(&receipt, 1);
  return true;
}

void PushServer::find_next() {
  const auto update = static_cast<std::size_t>(applied_);
  for (std::size_t i = 0; i < shape_.slices; ++i) {
    next_[i] = nullptr;
    for (const auto& client : clients_)
      for (const auto& push : client->kept)
        if (client->rank == sources_[update * shape_.slices + i] && push->step == order_[update] &&
            push->slice == i)
          next_[i] = push.get();
    if (next_[i] == nullptr)
      throw Error("parameter server: step {} is due, but rank {} has not sent its gradients",
                  order_[update], sources_[update * shape_.slices + i]);
  }
}

void PushServer::apply(FunctionRef<void(const Push&)> update) {
  const std::scoped_lock lock(updates_);
  for (std::size_t i = 0; i < next_.size(); ++i) {
    Kept& push = *next_[i];
    most_stale_ = std::max(most_stale_, applied_ - push.seen);
    update({.gradients = push.gradients.data(),
            .parts = push.parts,
            .is_whole = push.is_whole,
            .state = push.states.data(),
            .pulled = shape_.slices > 1 ? nullptr : push.states.data() + state_.size(),
            .is_next = applied_ == push.state_seen,
            .record = push.record,
            .slice = i});
  }
  const std::scoped_lock counted(mutex_);
  for (const Kept* push : next_)
    records_.insert(records_.end(), push->record.begin(), push->record.end());
  for (const auto& client : clients_) {
    auto& kept = client->kept;
    const auto made = std::partition(
        kept.begin(), kept.end(), [&](const auto& push) { return push->step != order_[applied_]; });
    std::move(made, kept.end(), std::back_inserter(unused_));
    kept.erase(made, kept.end());
  }
  ++applied_;
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
    find_next();
    lock.unlock();
    apply(update);
    lock.lock();
  }
}

std::vector<double> PushServer::take_records() {
  const std::scoped_lock lock(mutex_);
  const auto at = [&](std::uint64_t record) {
    return records_.begin() + static_cast<std::ptrdiff_t>(record * shape_.step_record());
  };
  std::vector<double> taken(at(taken_), at(finished_));
  taken_ = finished_;
  return taken;
}

std::uint64_t PushServer::dropped() {
  const std::scoped_lock lock(mutex_);
  return tickets_.dropped();
}

void PushServer::stop() {
  const std::scoped_lock lock(mutex_);
  if (is_first())
    heed(true);
  else
    stops_ = true;
}

}  // namespace lockstep::detail
