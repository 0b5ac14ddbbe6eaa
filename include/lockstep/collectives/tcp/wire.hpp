/// \file
/// Records: how bytes travel over a connection of the data plane. Invariants: a record that was
/// changed, dropped, repeated or reordered on its way is not accepted; sealed, only by the holder of
/// the key could it have been sent.
///
///     record    | length: 4 bytes | kind: 1 | 0: 3 |  payload  | trailer |
///     checked                                         plain      CRC32C of number, head and payload
///     sealed                                          AES-128-GCM  its tag of 16 bytes
///
/// The number of a record is not sent: both ends count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/concepts/data_connection.hpp"
#include "lockstep/core/config.hpp"

struct evp_cipher_ctx_st;

namespace lockstep::detail {

struct RecordHead {
  enum class Kind : std::uint8_t { call = 1, data = 2, notice = 3 };
  std::uint32_t bytes = 0;  ///< of the payload
  Kind kind{};
  std::uint8_t zeros[3] = {};
};
static_assert(sizeof(RecordHead) == 8);

/// One direction of a connection: makes records, or checks them.
class Wire {
 public:
  /// Payload bytes of the longest record, and of one with a CRC32C only, which need not arrive as a
  /// whole before it is used.
  static constexpr std::size_t longest = std::size_t{64} << 10;
  static constexpr std::size_t longest_plain = std::size_t{256} << 10;

  /// Without a key, records are only checked for errors.
  LOCKSTEP_COLD_DECL explicit Wire(const std::optional<WireKey>& key);

  bool sealed() const { return cipher_ != nullptr; }
  std::size_t trailer_bytes() const { return sealed() ? 16 : sizeof(std::uint32_t); }

  /// Appends a whole record to `out`, which has room for it. \return its length.
  LOCKSTEP_DECL std::size_t write(RecordHead::Kind kind, const std::byte* payload, std::size_t n,
                                  std::byte* out);
  /// Checks a whole record, whose payload and trailer begin at `body`, and writes its payload to
  /// `payload`. \return false if it is not what the peer has sent.
  LOCKSTEP_DECL bool read(const RecordHead& head, const std::byte* body, std::byte* payload);

  /// The CRC32C of a record whose payload is sent from, or received into, the caller's memory: begin
  /// with `start_crc`, continue with crc32c over the payload. For records that are not sealed.
  LOCKSTEP_DECL std::uint32_t start_crc(const RecordHead& head);
  /// Counts a record that is not read.
  void skip() { ++number_; }

 private:
  struct FreeCipher {
    LOCKSTEP_COLD_DECL void operator()(evp_cipher_ctx_st* cipher) const;
  };
  LOCKSTEP_DECL std::array<unsigned char, 12> next_nonce();

  std::unique_ptr<evp_cipher_ctx_st, FreeCipher> cipher_;
  std::array<unsigned char, 12> nonce_{};
  std::uint64_t number_ = 0;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/tcp/wire.ipp"
#endif
