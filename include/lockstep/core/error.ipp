#pragma once

#include "lockstep/core/error.hpp"

#include <utility>

namespace lockstep {

Error::Error(std::initializer_list<Piece> pieces) : std::runtime_error(text(pieces)) {}

FileError::FileError(std::string path, std::string_view fact)
    : Error({path, ": ", fact}), path_(std::move(path)) {}

FileError::FileError(std::string path, std::initializer_list<Piece> fact)
    : FileError(std::move(path), text(fact)) {}

OutOfMemory::OutOfMemory(std::size_t bytes, std::size_t free, std::initializer_list<Piece> pieces)
    : DeviceError(pieces), bytes_(bytes), free_(free) {}

CollectiveError::CollectiveError(std::size_t peer, std::initializer_list<Piece> pieces)
    : Error(pieces), peer_(peer) {}

LinkFailed::LinkFailed(std::string_view operation, std::size_t peer, std::size_t other,
                       std::string fact)
    : CollectiveError(peer,
                      {operation, ": the connection between replicas ", other < peer ? other : peer,
                       " and ", other < peer ? peer : other, " failed: ", fact}),
      other_(other),
      fact_(std::move(fact)) {}

ReplicasDiverged::ReplicasDiverged(std::size_t replica, std::string tensor,
                                   std::string_view sentence)
    : Error({sentence}), replica_(replica), tensor_(std::move(tensor)) {}

PeerLost::PeerLost(std::size_t rank, std::string address, std::string how,
                   std::optional<std::uint64_t> last_step)
    : Error(sentence(rank, address, how, last_step)),
      rank_(rank),
      address_(std::move(address)),
      how_(std::move(how)),
      last_step_(last_step) {}

std::string PeerLost::sentence(std::size_t rank, const std::string& address, const std::string& how,
                               std::optional<std::uint64_t> last_step) {
  std::string result = text({"rank ", rank});
  if (!address.empty()) result += text({" (", address, ")"});
  result += text({" ", how});
  if (last_step) result += text({"; the last step that all ranks finished is ", *last_step});
  return result;
}

}  // namespace lockstep
