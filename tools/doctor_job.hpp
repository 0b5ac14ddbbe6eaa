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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/cluster/rendezvous/data_connector.hpp>
#include <lockstep/cluster/rendezvous/file_limit.hpp>
#include <lockstep/cluster/rendezvous/rendezvous.hpp>
#include <lockstep/cluster/resolved_cluster.hpp>

#include "doctor_facts.hpp"
#include "doctor_pairs.hpp"

namespace lockstep_doctor {

/// One worker's part in the examination of its job. All workers call the members in this order.
///
///     connect        a data connection to each other worker       as TcpMesh gets them
///     measure        rounds of disjoint pairs
///     gather         facts of all workers                         at the chief only
///     share_verdict  the chief's exit code                        for all
class Examination {
 public:
  /// How long to wait for another worker that has joined.
  static constexpr std::chrono::milliseconds patience{20'000};

  Examination(lockstep::Rendezvous& job, const lockstep::ResolvedCluster& cluster)
      : job_(job), cluster_(cluster) {}

  /// Connects to the other workers until `timeout`, and agrees on the pairs to be measured.
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
      for (auto& connection : connector->connect(places, SteadyClock::now() + timeout, missing))
        connections_.emplace(connection.rank, std::move(connection));
    for (const auto& [peer, fact] : missing) faults_[peer] = in_ranks(fact);
    agree_on_plan();
  }

  /// Measures the pairs of this worker, one at a time.
  void measure() {
    constexpr std::chrono::seconds most{5};  // for a pair
    for (const auto& peer : schedule(job_.rank(), job_.size())) {
      if (!peer) continue;
      PairFacts pair{.a = std::min(job_.rank(), *peer), .b = std::max(job_.rank(), *peer)};
      const bool is_planned = plan_[*peer] == '1';
      if (is_planned) {
        const int socket = connections_.at(*peer).socket.number();
        try {
          PairMeter meter(socket, SteadyClock::now() + most);
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
        pair.fault = faults_[*peer].empty() ? "only one end of it was made" : faults_[*peer];
      }
      // The leader of a measurement has the numbers; the end that was to connect knows why it could
      // not.
      if (job_.rank() == (is_planned ? pair.a : pair.b)) pairs_.push_back(pair);
    }
  }

  /// Publishes the facts of this worker; at the chief, \returns those of all, else nothing.
  JobFacts gather(HostFacts facts) {
    facts.rank = static_cast<std::int64_t>(job_.rank());
    facts.address = job_.local_address();
    facts.machine += " " + job_.local_address();
    facts.listen_fault = listen_fault_;
    JobFacts all;
    job_.set(key("pairs", job_.rank()), encode(pairs_));
    job_.set(key("host", job_.rank()), encode(facts));
    if (job_.rank() != 0) return all;
    const std::size_t size = job_.size();
    std::map<std::pair<std::size_t, std::size_t>, PairFacts> pairs;
    for (std::size_t rank = 0; rank < size; ++rank) {
      all.hosts.push_back(decode(job_.get(key("host", rank), patience)));
      all.hosts.back().rank = static_cast<std::int64_t>(rank);
      for (const PairFacts& pair : decode_pairs(job_.get(key("pairs", rank), patience), size))
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
    return job_.get(name, patience) == "0" ? 0 : 1;
  }

 private:
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

  /// plan_[peer] becomes '1' if both ends of the connection exist.
  void agree_on_plan() {
    std::string mine(job_.size(), '0');
    for (const auto& [peer, connection] : connections_) mine[peer] = '1';
    job_.set(key("connected", job_.rank()), mine);
    if (job_.rank() == 0) {
      std::vector<std::string> ends;
      for (std::size_t rank = 0; rank < job_.size(); ++rank) {
        ends.push_back(job_.get(key("connected", rank), patience));
        ends.back().resize(job_.size(), '0');
      }
      for (std::size_t a = 0; a < job_.size(); ++a) {
        std::string row;
        for (std::size_t b = 0; b < job_.size(); ++b)
          row += ends[a][b] == '1' && ends[b][a] == '1' ? '1' : '0';
        job_.set(key("plan", a), row);
      }
    }
    plan_ = job_.get(key("plan", job_.rank()), patience);
    plan_.resize(job_.size(), '0');
  }

  lockstep::Rendezvous& job_;
  const lockstep::ResolvedCluster& cluster_;
  std::string plan_;
  std::map<std::size_t, lockstep::DataConnection> connections_;
  std::map<std::size_t, std::string> faults_;
  std::string listen_fault_;
  std::vector<PairFacts> pairs_;
};

}  // namespace lockstep_doctor
