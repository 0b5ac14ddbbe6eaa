#pragma once

#include "lockstep/cluster/elastic/elastic_member.hpp"

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/cluster/elastic/elastic_core.hpp"
#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/timer.hpp"

namespace lockstep::detail {

/// How long a process that was asked to stop waits for the others, which may be there soon.
inline constexpr milliseconds time_to_leave{5000};

ElasticMember::ElasticMember(const ResolvedCluster& described, const Secret& secret,
                             ElasticSettings settings)
    : core_(std::make_unique<ElasticCore>(described, secret, std::move(settings))) {}

ElasticMember::~ElasticMember() = default;

Generation ElasticMember::join(const std::stop_token& stop) {
  // A program may make a model after an earlier signal, with workers that have got it, too.
  return core_->wait([core = core_.get()] { core->participant.join(Clock::now()); }, std::nullopt,
                     stop, stop.stop_requested() ? time_to_leave : milliseconds(0));
}

Generation ElasticMember::next(const std::string& why, const std::stop_token& stop) {
  constexpr milliseconds margin{5000};
  return core_->wait(
      [core = core_.get(), why] {
        core->why = why;
        core->participant.next(Clock::now());
      },
      core_->described.rendezvous_timeout + margin, stop, time_to_leave);
}

bool ElasticMember::has_newcomers() const noexcept {
  return core_->has_newcomers.load(std::memory_order_relaxed);
}

bool ElasticMember::must_reform() const noexcept { return core_->must_reform.load(); }

void ElasticMember::on_reform(std::function<void()> callback) {
  const std::scoped_lock lock(core_->callback_mutex);
  core_->callback = std::move(callback);
  if (core_->must_reform.load() && core_->callback) core_->callback();
}

void ElasticMember::reject_newcomers() {
  detail::post(core_->io,
               [core = core_.get()] { core->participant.reject_newcomers(Clock::now()); });
}

void ElasticMember::leave() { core_->leave(); }

}  // namespace lockstep::detail
