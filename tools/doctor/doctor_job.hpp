/// \file
/// Examines a job whose workers have joined: connects each two of them, measures, and brings the facts
/// together at the chief. Invariant: a connection that cannot be made or that fails is a fact, not an
/// error; only a lost worker is one.
#pragma once

#include <sys/socket.h>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/cluster/description/resolved_cluster.hpp>
#include <lockstep/cluster/network/data_connector.hpp>
#include <lockstep/cluster/network/file_limit.hpp>
#include <lockstep/cluster/rendezvous/rendezvous.hpp>
#include <lockstep/core/error.hpp>

#include "doctor_facts.hpp"
#include "doctor_host.hpp"
#include "doctor_pairs.hpp"

namespace lockstep_doctor {

/// One worker's part in the examination of its job. All workers call the members in this order.
///
///     connect        a data connection to each other worker       as TcpMesh gets them
///     measure        first the links between machines, each alone; then rounds of disjoint pairs
///     gather         facts of all workers                         at the chief only
///     share_verdict  the chief's exit code                        for all
class Examination {
 public:
  /// How long to wait for another worker that has joined.
  static constexpr std::chrono::milliseconds patience{20'000};
  /// For data connections: shorter than `patience`, so that the others still wait for the result.
  static constexpr std::chrono::milliseconds connect_limit{10'000};
  /// For the facts of a host, which reads them for at most `HostOptions::limit`.
  static constexpr std::chrono::milliseconds patience_for_host{40'000};

  Examination(lockstep::Rendezvous& job, const lockstep::ResolvedCluster& cluster)
      : job_(job), cluster_(cluster) {}

  /// Connects to the other workers for at most `timeout` and `connect_limit`, and agrees on the pairs
  /// to be measured.
  void connect(std::chrono::milliseconds timeout) {
    std::map<std::size_t, std::string> places;
    std::optional<lockstep::DataConnector> connector;
    try {
      connector.emplace(options());
    } catch (const lockstep::Error& error) {
      listen_fault_ = error.what();
    }
    job_.set(key("place", job_.rank()),
             connector && !connector->place().empty() ? connector->place() : "none");
    for (std::size_t peer = 0; peer < job_.rank(); ++peer) {
      const std::string place = job_.get(key("place", peer), patience);
      if (place != "none") places[peer] = place;
      faults_[peer] = place == "none" ? "it accepts none" : listen_fault_;
    }
    std::vector<lockstep::DataConnector::Missing> missing;
    if (connector)
      for (auto& connection : connector->connect(
               places, SteadyClock::now() + std::min(timeout, connect_limit), missing))
        connections_.emplace(connection.rank, std::move(connection));
    for (const auto& [peer, fact] : missing) faults_[peer] = in_ranks(fact);
    agree_on_plan();
  }

  /// Measures the pairs of this worker, one at a time, and publishes what it has found. The links
  /// between machines come first: one pair for each two machines, and none else of these machines.
  void measure() {
    const auto own = std::find(leaders_.begin(), leaders_.end(), job_.rank());
    if (own != leaders_.end())
      for (const auto& peer :
           schedule(static_cast<std::size_t>(own - leaders_.begin()), leaders_.size()))
        if (peer) measure_with(leaders_[*peer]);
    job_.barrier("doctor/links", longest_wait());
    for (const auto& peer : schedule(job_.rank(), job_.size()))
      if (peer && !(own != leaders_.end() && is_leader(*peer))) measure_with(*peer);
    job_.set(key("pairs", job_.rank()), encode(pairs_));
  }

  /// Publishes the facts of this worker; at the chief, \returns those of all, else nothing.
  JobFacts gather(HostFacts facts) {
    facts.rank = static_cast<std::int64_t>(job_.rank());
    facts.address = job_.local_address();
    facts.machine = machine();
    facts.listen_fault = listen_fault_;
    JobFacts all;
    job_.set(key("host", job_.rank()), encode(facts));
    if (job_.rank() != 0) return all;
    const std::size_t size = job_.size();
    std::map<std::pair<std::size_t, std::size_t>, PairFacts> pairs;
    for (std::size_t rank = 0; rank < size; ++rank) {
      all.hosts.push_back(facts_of(rank));
      for (const PairFacts& pair : decode_pairs(job_.get(key("pairs", rank), longest_wait()), size))
        pairs[{pair.a, pair.b}] = pair;
    }
    for (std::size_t a = 0; a < size; ++a)
      for (std::size_t b = a + 1; b < size; ++b) {
        const auto found = pairs.find({a, b});
        all.pairs.push_back(found != pairs.end()
                                ? found->second
                                : PairFacts{.a = a, .b = b, .fault = "neither end reported on it"});
      }
    return all;
  }

  /// \returns the chief's exit code, on all workers.
  int share_verdict(int code) {
    const std::string name = "doctor/verdict";
    if (job_.rank() == 0) job_.set(name, code == 0 ? "0" : "1");
    return job_.get(name, longest_wait()) == "0" ? 0 : 1;
  }

 private:
  /// For a worker that may still measure pairs, or wait for the facts of hosts. A lost one ends it.
  std::chrono::milliseconds longest_wait() const {
    return static_cast<std::int64_t>(job_.size()) *
               (2 * (PairMeter::answer_limit + PairMeter::transfer_limit) + patience_for_host) +
           patience;
  }
  /// Equal for the workers of one machine.
  std::string machine() const {
    return first_line("/proc/sys/kernel/random/boot_id") + " " + job_.local_address();
  }
  bool is_leader(std::size_t rank) const {
    return std::find(leaders_.begin(), leaders_.end(), rank) != leaders_.end();
  }

  void measure_with(std::size_t peer) {
    PairFacts pair{.a = std::min(job_.rank(), peer), .b = std::max(job_.rank(), peer)};
    const bool is_planned = plan_[peer] == '1';
    if (is_planned) {
      // Through the store: the peer may be late, since a pair before this one did not answer it.
      const auto ready = [&](std::size_t rank) {
        return fmt::format("doctor/ready/{}-{}/{}", pair.a, pair.b, rank);
      };
      job_.set(ready(job_.rank()), "1");
      job_.get(ready(peer), longest_wait());
      const int socket = connections_.at(peer).socket.number();
      try {
        PairMeter meter(socket);
        if (job_.rank() == pair.a)
          meter.lead(pair);
        else
          meter.follow();
        pair.is_measured = true;
      } catch (const std::exception& error) {
        pair.fault = fmt::format("it was made, but then: {}", error.what());
        ::shutdown(socket, SHUT_RDWR);  // ends the peer's wait
      }
    } else {
      pair.fault = faults_[peer].empty() ? "only one end of it was made" : faults_[peer];
    }
    // The leader of a measurement has the numbers; the end that was to connect knows why it could
    // not.
    if (job_.rank() == (is_planned ? pair.a : pair.b)) pairs_.push_back(pair);
  }

  /// The facts of a worker's host, or that it does not report them.
  HostFacts facts_of(std::size_t rank) {
    HostFacts facts;
    try {
      facts = decode(job_.get(key("host", rank), patience_for_host));
    } catch (const lockstep::CollectiveTimeout&) {
      facts = HostFacts{};
      facts.host = job_.address_of(rank);
      facts.machine = machines_[rank];
      facts.fault = fmt::format("it has not reported on its host within {} s",
                                patience_for_host.count() / 1000);
    }
    facts.rank = static_cast<std::int64_t>(rank);
    return facts;
  }

  static std::string key(std::string_view what, std::size_t rank) {
    return fmt::format("doctor/{}/{}", what, rank);
  }
  /// The messages of data connections call a rank a replica.
  static std::string in_ranks(std::string text) {
    const std::string from = "replica ", to = "rank ";
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    return text;
  }

  lockstep::DataOptions options() const {
    std::string run;
    for (const std::uint8_t byte : job_.run_id()) run += fmt::format("{:02x}", byte);
    lockstep::DataOptions options{
        .rank = job_.rank(),
        .per_peer = 1,
        .address = job_.local_address(),
        .ports = cluster_.data_ports,
        .run = "doctor " + run,
        .key = lockstep::Secret(std::string(job_.key().begin(), job_.key().end())),
        .silence = job_.timeouts().silence};
    for (std::size_t rank = 0; rank < job_.size(); ++rank)
      if (rank != job_.rank()) options.peers.push_back(rank);
    lockstep::detail::check_file_limit(
        options.peers.size(),
        fmt::format("the data connections to {} workers", options.peers.size()));
    return options;
  }

  /// plan_[peer] becomes '1' if both ends of the connection exist; leaders_ the first rank of each
  /// machine.
  void agree_on_plan() {
    std::string mine(job_.size(), '0');
    for (const auto& [peer, connection] : connections_) mine[peer] = '1';
    job_.set(key("machine", job_.rank()), machine());
    job_.set(key("connected", job_.rank()), mine);
    if (job_.rank() == 0) {
      std::vector<std::string> ends;
      for (std::size_t rank = 0; rank < job_.size(); ++rank) {
        ends.push_back(job_.get(key("connected", rank), patience));
        ends.back().resize(job_.size(), '0');
        machines_.push_back(job_.get(key("machine", rank), patience));
      }
      std::string leaders;
      for (std::size_t rank = 0; rank < job_.size(); ++rank)
        if (std::find(machines_.begin(), machines_.end(), machines_[rank]) ==
            machines_.begin() + static_cast<std::ptrdiff_t>(rank))
          leaders += fmt::format("{} ", rank);
      job_.set("doctor/leaders", leaders);
      for (std::size_t a = 0; a < job_.size(); ++a) {
        std::string row;
        for (std::size_t b = 0; b < job_.size(); ++b)
          row += ends[a][b] == '1' && ends[b][a] == '1' ? '1' : '0';
        job_.set(key("plan", a), row);
      }
    }
    plan_ = job_.get(key("plan", job_.rank()), patience);
    plan_.resize(job_.size(), '0');
    std::istringstream leaders(job_.get("doctor/leaders", patience));
    for (std::size_t rank = 0; leaders >> rank;)
      if (rank < job_.size()) leaders_.push_back(rank);
  }

  lockstep::Rendezvous& job_;
  const lockstep::ResolvedCluster& cluster_;
  std::string plan_;
  std::vector<std::size_t> leaders_;   // the first rank of each machine
  std::vector<std::string> machines_;  // by rank; at the chief only
  std::map<std::size_t, lockstep::DataConnection> connections_;
  std::map<std::size_t, std::string> faults_;
  std::string listen_fault_;
  std::vector<PairFacts> pairs_;
};

}  // namespace lockstep_doctor
