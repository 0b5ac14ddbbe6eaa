#pragma once

#include "lockstep/cluster/rendezvous/messages.hpp"

namespace lockstep::detail {

void RetryLater::read(FrameReader& from) {
  reason = from.bytes(max_text_bytes);
  family = from.choice(AddressFamily::ipv6);
}

void MissingRanks::read(FrameReader& from) {
  count = from.number<std::uint32_t>();
  first = from.number<std::uint32_t>();
  names = from.bytes(max_text_bytes);
}

void Peers::write(FrameWriter& to) const {
  to.number(first).number(static_cast<std::uint32_t>(addresses.size()));
  for (const std::string& address : addresses) to.bytes(address);
}

void Peers::read(FrameReader& from) {
  first = from.number<std::uint32_t>();
  addresses.resize(from.count(4));
  for (std::string& address : addresses) address = from.bytes(max_text_bytes);
}

void Start::write(FrameWriter& to) const {
  to.number(rank);
  for (const auto byte : run_id) to.number(byte);
  for (const auto byte : key) to.number(byte);
  to.bytes(data_address);
}

void Start::read(FrameReader& from) {
  rank = from.number<std::uint32_t>();
  for (auto& byte : run_id) byte = from.number<std::uint8_t>();
  for (auto& byte : key) byte = from.number<std::uint8_t>();
  data_address = from.bytes(max_address_bytes);
}

void Heartbeat::write(FrameWriter& to) const {
  to.number(progress.step).number(static_cast<std::uint8_t>(progress.phase));
  to.flag(progress.first_step).number(static_cast<std::uint32_t>(stalled_for.count()));
  to.number(exchange.done);
  to.number(exchange.waits_for ? static_cast<std::uint32_t>(*exchange.waits_for) : nobody);
  to.number(stamps.sent).number(stamps.echo).number(stamps.held).number(stamps.longest);
}

void Heartbeat::read(FrameReader& from) {
  progress.step = from.number<std::uint64_t>();
  progress.phase = from.choice(last_phase);
  progress.first_step = from.flag();
  stalled_for = std::chrono::milliseconds(from.number<std::uint32_t>());
  exchange.done = from.number<std::uint64_t>();
  const auto whom = from.number<std::uint32_t>();
  exchange.waits_for = whom == nobody ? std::nullopt : std::optional<std::size_t>(whom);
  for (auto* stamp : {&stamps.sent, &stamps.echo, &stamps.held, &stamps.longest})
    *stamp = from.number<std::uint64_t>();
}

void Request::write(FrameWriter& to) const {
  to.number(id).number(static_cast<std::uint8_t>(operation)).bytes(name).bytes(value);
  to.number(number).number(static_cast<std::uint32_t>(deadline.count()));
  write_fields(to, fields);
}

void Request::read(FrameReader& from) {
  id = from.number<std::uint64_t>();
  operation = from.choice(Operation::gather);
  name = from.bytes(max_name_bytes);
  value = from.bytes(max_value_bytes);
  number = from.number<std::uint64_t>();
  deadline = std::chrono::milliseconds(from.number<std::uint32_t>());
  fields = read_fields(from);
}

void Reply::write(FrameWriter& to) const {
  to.number(id).number(static_cast<std::uint8_t>(status)).bytes(value).number(number);
}

void Reply::read(FrameReader& from) {
  id = from.number<std::uint64_t>();
  status = from.choice(Code::error);
  value = from.bytes(max_value_bytes);
  number = from.number<std::uint64_t>();
}

void Accuse::read(FrameReader& from) {
  rank = from.number<std::uint32_t>();
  how = from.bytes(max_text_bytes);
  other = from.number<std::uint32_t>();
}

void LostPeer::write(FrameWriter& to) const {
  to.number(rank).bytes(address).bytes(how).flag(last_step.has_value());
  if (last_step) to.number(*last_step);
}

void LostPeer::read(FrameReader& from) {
  rank = from.number<std::uint32_t>();
  address = from.bytes(max_text_bytes);
  how = from.bytes(max_text_bytes);
  if (from.flag()) last_step = from.number<std::uint64_t>();
}

void Leave::write(FrameWriter& to) const {
  to.flag(cause.has_value());
  if (cause) cause->write(to);
}

void Leave::read(FrameReader& from) {
  if (from.flag()) cause.emplace().read(from);
}

}  // namespace lockstep::detail
