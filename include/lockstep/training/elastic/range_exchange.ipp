#pragma once

#include "lockstep/training/elastic/range_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace lockstep::detail {

inline bool contains(const Ranges& all, std::size_t element) {
  return std::any_of(all.begin(), all.end(),
                     [&](const Slice& part) { return part.contains(element); });
}

inline const HeldRange* held_at(const RangeOffer& offer, std::size_t element) {
  for (const HeldRange& held : offer.has)
    if (held.range.contains(element)) return &held;
  return nullptr;
}

/// The first and last elements of all ranges: between two of them every process has, or needs, all
/// elements or none.
inline std::vector<std::size_t> cuts_of(std::span<const RangeOffer> offers) {
  std::vector<std::size_t> cuts;
  const auto add = [&](Slice range) {
    if (range.count == 0) return;
    cuts.push_back(range.first);
    cuts.push_back(range.first + range.count);
  };
  for (const RangeOffer& offer : offers) {
    for (const HeldRange& held : offer.has) add(held.range);
    for (const Slice& range : offer.needs) add(range);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

/// The process with the newest version of an element, of several the lowest.
inline std::optional<std::size_t> newest(std::span<const RangeOffer> offers, std::size_t element) {
  std::optional<std::size_t> best;
  for (std::size_t p = 0; p < offers.size(); ++p) {
    const HeldRange* const held = held_at(offers[p], element);
    if (held && (!best || held->version > held_at(offers[*best], element)->version)) best = p;
  }
  return best;
}

std::vector<RangeTransfer> plan_transfers(std::span<const RangeOffer> offers) {
  std::vector<RangeTransfer> plan;
  const std::vector<std::size_t> cuts = cuts_of(offers);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Slice part{cuts[i], cuts[i + 1] - cuts[i]};
    const std::optional<std::size_t> from = newest(offers, part.first);
    std::vector<bool> to(offers.size());
    bool is_needed = false, is_lacked = false;
    for (std::size_t p = 0; p < offers.size(); ++p) {
      if (!contains(offers[p].needs, part.first)) continue;
      is_needed = true;
      const HeldRange* const own = held_at(offers[p], part.first);
      to[p] = from && (!own || own->version < held_at(offers[*from], part.first)->version);
      is_lacked = is_lacked || to[p];
    }
    if (is_needed && !from) throw RangeLost(part);
    if (!is_lacked) continue;
    RangeTransfer next{part, held_at(offers[*from], part.first)->version, *from, std::move(to)};
    const bool continues = !plan.empty() &&
                           plan.back().range.first + plan.back().range.count == part.first &&
                           plan.back().version == next.version && plan.back().from == next.from &&
                           plan.back().to == next.to;
    if (continues)
      plan.back().range.count += part.count;
    else
      plan.push_back(std::move(next));
  }
  return plan;
}

/// The newest versions of the elements that a process needs.
inline std::vector<HeldRange> newest_of(std::span<const RangeOffer> offers, std::size_t process) {
  std::vector<HeldRange> result;
  const std::vector<std::size_t> cuts = cuts_of(offers);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (!contains(offers[process].needs, cuts[i])) continue;
    const std::uint64_t version = held_at(offers[*newest(offers, cuts[i])], cuts[i])->version;
    const Slice part{cuts[i], cuts[i + 1] - cuts[i]};
    const bool continues = !result.empty() && result.back().version == version &&
                           result.back().range.first + result.back().range.count == part.first;
    if (continues)
      result.back().range.count += part.count;
    else
      result.push_back({part, version});
  }
  return result;
}

/// Numbers: the first replica's rank, of how many ranges, each range and its version, then the needs.
inline std::vector<std::uint64_t> message_of(const RangeOffer& offer, std::size_t root) {
  std::vector<std::uint64_t> numbers{root, offer.has.size()};
  for (const HeldRange& held : offer.has)
    numbers.insert(numbers.end(), {held.range.first, held.range.count, held.version});
  for (const Slice& range : offer.needs) numbers.insert(numbers.end(), {range.first, range.count});
  return numbers;
}

inline RangeOffer offer_in_message(std::span<const std::byte> bytes, std::size_t& root) {
  std::vector<std::uint64_t> numbers(bytes.size() / sizeof(std::uint64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  if (numbers.size() < 2 || bytes.size() % sizeof(std::uint64_t) != 0 ||
      (numbers.size() - 2) / 3 < numbers[1] || (numbers.size() - 2 - 3 * numbers[1]) % 2 != 0)
    throw Error(
        "elastic: a process sent a malformed list of its ranges; use the same version of lockstep "
        "in all processes");
  root = numbers[0];
  RangeOffer offer;
  const std::uint64_t* next = numbers.data() + 2;
  for (std::uint64_t i = 0; i < numbers[1]; ++i, next += 3)
    offer.has.push_back({{next[0], next[1]}, next[2]});
  for (; next != numbers.data() + numbers.size(); next += 2) offer.needs.add({next[0], next[1]});
  return offer;
}

std::vector<HeldRange> exchange_ranges(AnyJob& job, const RangeOffer& mine,
                                       const RangeBuffers& buffers) {
  const TrainingPlace place = job.place();
  const std::vector<std::uint64_t> message = message_of(mine, place.first_replica);
  const auto messages = job.gather(std::as_bytes(std::span(message)));
  std::vector<std::size_t> roots(messages.size());
  std::vector<RangeOffer> offers;
  for (std::size_t p = 0; p < messages.size(); ++p)
    offers.push_back(offer_in_message(messages[p], roots[p]));
  const std::vector<RangeTransfer> plan = plan_transfers(offers);
  const auto each_buffer = [&](const Slice& range, const auto& f) {
    const std::size_t at = range.first * buffers.element;
    for (std::size_t i = 0; i < buffers.to.size(); ++i)
      f(range.count * buffers.element, buffers.from[i] == nullptr ? nullptr : buffers.from[i] + at,
        buffers.to[i] == nullptr ? nullptr : buffers.to[i] + at);
  };
  // The own elements, which a transfer of a newer version replaces.
  for (const HeldRange& held : mine.has)
    mine.needs.each_within(held.range, [&](const Slice& part, std::size_t) {
      each_buffer(part, [](std::size_t size, const std::byte* from, std::byte* to) {
        if (from != to) std::memmove(to, from, size);
      });
    });
  for (const RangeTransfer& transfer : plan) {
    const bool sends = transfer.from == place.rank, keeps = transfer.to[place.rank];
    each_buffer(transfer.range, [&](std::size_t size, const std::byte* from, std::byte* to) {
      job.broadcast_from(roots[transfer.from], size, sends ? from : nullptr, keeps ? to : nullptr);
    });
  }
  return newest_of(offers, place.rank);
}

}  // namespace lockstep::detail
