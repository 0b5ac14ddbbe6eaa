/// \file
/// A connection between two workers, as the rendezvous makes it and a collective uses it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "lockstep/core/process/file_descriptor.hpp"

namespace lockstep {

/// The key of one direction of a connection, for AES-128-GCM.
struct WireKey {
  std::array<unsigned char, 16> key{};
  std::array<unsigned char, 12> nonce{};  ///< of record 0; that of record i is the nonce xor i
};

/// A connected stream socket whose ends have proved that they belong to the same run.
struct DataConnection {
  std::size_t rank = 0;   ///< of the peer
  std::size_t index = 0;  ///< among the connections to this peer; the same at both ends
  FileDescriptor socket{};
  std::optional<WireKey> send_key{}, receive_key{};  ///< empty: records carry a CRC32C only
};

}  // namespace lockstep
