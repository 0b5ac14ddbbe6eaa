#pragma once

#include "lockstep/cluster/elastic/decision.hpp"

#include <algorithm>

namespace lockstep::detail {

std::optional<std::size_t> Decision::rank_of(const Identity& who) const {
  for (std::size_t r = 0; r < seats.size(); ++r)
    if (seats[r].who == who) return r;
  return std::nullopt;
}

std::vector<MachineId> Decision::machines() const {
  std::vector<MachineId> result;
  for (const Seat& seat : seats) result.push_back(seat.machine);
  return result;
}

void Decision::write(FrameWriter& to) const {
  to.number(run).number(number).number(nonce).number(port);
  to.number(static_cast<std::uint32_t>(seats.size()));
  for (const Seat& seat : seats) {
    to.number(seat.who.index).number(seat.who.incarnation).number(seat.former);
    for (const auto byte : seat.machine) to.number(byte);
  }
}

void Decision::read(FrameReader& from) {
  constexpr std::size_t seat_bytes = 32;
  run = from.number<std::uint64_t>();
  number = from.number<std::uint64_t>();
  nonce = from.number<std::uint64_t>();
  port = from.number<std::uint16_t>();
  seats.resize(std::min(from.count(seat_bytes), max_elastic_workers + 1));
  from.require(run != 0 && !seats.empty() && seats.size() <= max_elastic_workers);
  std::vector<bool> taken(max_elastic_workers);
  for (Seat& seat : seats) {
    seat.who.index = from.number<std::uint32_t>();
    seat.who.incarnation = from.number<std::uint64_t>();
    seat.former = from.number<std::uint32_t>();
    for (auto& byte : seat.machine) byte = from.number<std::uint8_t>();
    from.require(seat.who.index < max_elastic_workers);
    if (from.failed()) return;
    from.require(!taken[seat.who.index]);
    taken[seat.who.index] = true;
    from.require(seat.former == Seat::newcomer || seat.former < max_elastic_workers);
  }
}

std::string encode(const Decision& decision) {
  FrameWriter writer(FrameType::agreement);
  decision.write(writer);
  return std::move(writer).finish().substr(frame_header);
}

std::optional<Decision> decode(std::string_view value) {
  FrameReader reader(value);
  Decision decision;
  decision.read(reader);
  if (!reader.finished()) return std::nullopt;
  return decision;
}

}  // namespace lockstep::detail
