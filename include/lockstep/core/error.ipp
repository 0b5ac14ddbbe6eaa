#pragma once

#include "lockstep/core/error.hpp"

#include <utility>

#include "lockstep/core/format_text.hpp"

namespace lockstep {

FileError::FileError(std::string path, std::string_view fact)
    : Error("{}: {}", path, fact), path_(std::move(path)) {}

LinkFailed::LinkFailed(std::string_view operation, std::size_t peer, std::size_t other,
                       std::string fact)
    : CollectiveError(peer, "{}: the connection between replicas {} and {} failed: {}", operation,
                      other < peer ? other : peer, other < peer ? peer : other, fact),
      other_(other),
      fact_(std::move(fact)) {}

ReplicasDiverged::ReplicasDiverged(std::size_t replica, std::string tensor,
                                   std::string_view sentence)
    : Error(std::string(sentence)), replica_(replica), tensor_(std::move(tensor)) {}

Evicted::Evicted(int signal)
    : Error("this worker has left the elastic job because of signal {}", signal), signal_(signal) {}

PeerLost::PeerLost(std::size_t rank, std::string address, std::string how,
                   std::optional<std::uint64_t> last_step)
    : Error(sentence(rank, address, how, last_step)),
      rank_(rank),
      address_(std::move(address)),
      how_(std::move(how)),
      last_step_(last_step) {}

std::string PeerLost::sentence(std::size_t rank, const std::string& address, const std::string& how,
                               std::optional<std::uint64_t> last_step) {
  std::string result = format_text("rank {}", rank);
  if (!address.empty()) result += format_text(" ({})", address);
  result += " " + how;
  if (last_step) result += format_text("; the last step that all ranks finished is {}", *last_step);
  return result;
}

}  // namespace lockstep
