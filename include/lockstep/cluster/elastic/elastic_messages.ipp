#pragma once

#include "lockstep/cluster/elastic/elastic_messages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace lockstep::detail {

/// Writes and reads the parts of messages, in the order of their fields.
struct LetterCodec {
  static constexpr std::size_t max_value_bytes = 48 * 1024, max_sentence_bytes = 2048;

  static void write(FrameWriter& to, const GenerationId& id) {
    to.number(id.run).number(id.number);
  }
  static void read(FrameReader& from, GenerationId& id) {
    id.run = from.number<std::uint64_t>();
    id.number = from.number<std::uint64_t>();
  }
  static void write(FrameWriter& to, const Ballot& b) { to.number(b.round).number(b.rank); }
  static void read(FrameReader& from, Ballot& ballot) {
    ballot.round = from.number<std::uint32_t>();
    ballot.rank = from.number<std::uint32_t>();
  }

  static void write(FrameWriter& to, const Notice& notice) {
    to.number(static_cast<std::uint8_t>(notice.standing)).flag(notice.polls);
    write(to, notice.generation);
    for (const auto byte : notice.machine) to.number(byte);
    to.number(static_cast<std::uint32_t>(notice.rejected.size()));
    for (const auto incarnation : notice.rejected) to.number(incarnation);
  }
  static void read(FrameReader& from, Notice& notice) {
    notice.standing = from.choice(Standing::left);
    notice.polls = from.flag();
    read(from, notice.generation);
    for (auto& byte : notice.machine) byte = from.number<std::uint8_t>();
    const std::size_t count = from.count(sizeof(std::uint64_t));
    from.require(count <= Notice::max_rejected);
    if (from.failed()) return;
    notice.rejected.resize(count);
    for (auto& incarnation : notice.rejected) incarnation = from.number<std::uint64_t>();
  }

  static void write(FrameWriter& to, const Form& lock) { to.number(lock.run); }
  static void read(FrameReader& from, Form& lock) {
    lock.run = from.number<std::uint64_t>();
    from.require(lock.run != 0);
  }

  static void write(FrameWriter& to, const Prepare& prepare) {
    write(to, prepare.generation);
    write(to, prepare.ballot);
  }
  static void read(FrameReader& from, Prepare& prepare) {
    read(from, prepare.generation);
    read(from, prepare.ballot);
  }

  static void write(FrameWriter& to, const MissingMembers& missing) {
    to.number(missing.count).number(static_cast<std::uint8_t>(missing.listed.size()));
    for (const std::uint32_t index : missing.listed) to.number(index);
  }
  static void read(FrameReader& from, MissingMembers& missing) {
    missing.count = from.number<std::uint32_t>();
    const std::size_t listed = from.number<std::uint8_t>();
    from.require(listed <= MissingMembers::max_listed);
    for (std::size_t i = 0; i < listed && i < MissingMembers::max_listed; ++i)
      missing.listed.push_back(from.number<std::uint32_t>());
  }

  static void write(FrameWriter& to, const Promise& promise) {
    write(to, promise.generation);
    write(to, promise.asked);
    write(to, promise.vote.promised);
    write(to, promise.vote.accepted);
    to.bytes(promise.vote.value);
  }
  static void read(FrameReader& from, Promise& promise) {
    read(from, promise.generation);
    read(from, promise.asked);
    read(from, promise.vote.promised);
    read(from, promise.vote.accepted);
    promise.vote.value = from.bytes(max_value_bytes);
  }

  static void write(FrameWriter& to, const Accept& accept) {
    write(to, accept.generation);
    write(to, accept.ballot);
    to.bytes(accept.value);
  }
  static void read(FrameReader& from, Accept& accept) {
    read(from, accept.generation);
    read(from, accept.ballot);
    accept.value = from.bytes(max_value_bytes);
  }

  static void write(FrameWriter& to, const Accepted& accepted) {
    write(to, accepted.generation);
    write(to, accepted.asked);
    write(to, accepted.promised);
  }
  static void read(FrameReader& from, Accepted& accepted) {
    read(from, accepted.generation);
    read(from, accepted.asked);
    read(from, accepted.promised);
  }

  static void write(FrameWriter& to, const Decided& decided) { decided.decision.write(to); }
  static void read(FrameReader& from, Decided& decided) { decided.decision.read(from); }

  static void write(FrameWriter& to, const Refused& refused) {
    to.bytes(std::string_view(refused.sentence).substr(0, max_sentence_bytes))
        .flag(refused.is_transient);
  }
  static void read(FrameReader& from, Refused& refused) {
    refused.sentence = from.bytes(max_sentence_bytes);
    refused.is_transient = from.flag();
  }

  /// Reads the alternative with index `kind`.
  template <std::size_t kind = 0>
  static ElasticMessage read(FrameReader& from, std::size_t wanted) {
    if constexpr (kind < std::variant_size_v<ElasticMessage>) {
      if (kind != wanted) return read<kind + 1>(from, wanted);
      std::variant_alternative_t<kind, ElasticMessage> message;
      read(from, message);
      return message;
    } else {
      from.require(false);
      return {};
    }
  }
};

std::string frame(const Letter& letter) {
  FrameWriter writer(FrameType::agreement);
  writer.number(letter.from.index).number(letter.from.incarnation).number(letter.serial);
  writer.number(static_cast<std::uint8_t>(letter.message.index()));
  std::visit([&](const auto& message) { LetterCodec::write(writer, message); }, letter.message);
  return std::move(writer).finish();
}

std::optional<Letter> parse_letter(std::string_view body) {
  FrameReader reader(body);
  Letter letter;
  letter.from.index = reader.number<std::uint32_t>();
  letter.from.incarnation = reader.number<std::uint64_t>();
  letter.serial = reader.number<std::uint64_t>();
  const std::size_t kind = reader.number<std::uint8_t>();
  letter.message = LetterCodec::read(reader, kind);
  if (!reader.finished()) return std::nullopt;
  return letter;
}

}  // namespace lockstep::detail
