// Hostile bytes as what a connection of the rendezvous receives: each frame is refused or means
// exactly its bytes; requests to the store are answered once each, at their deadline at the latest.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/promises.hpp"
#include "lockstep/cluster/elastic/elastic_messages.hpp"
#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/frames.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/store.hpp"

namespace {

using namespace lockstep::detail;
using fuzz::require;

/// Checks that a parsed message is serialized to the same bytes.
template <class Message>
void round_trip(const Frame& found) {
  if (found.type != Message::type) return;
  const auto message = parse<Message>(found.body);
  if (message) require(frame(*message).substr(frame_header) == found.body);
}

/// A store of three ranks that counts its answers.
struct Chief {
  std::map<std::pair<std::size_t, std::uint64_t>, int> open;
  std::uint64_t last = 0;
  Clock::time_point now{};
  Store store{3,
              [this](std::size_t rank, const Reply& reply) {
                const auto asked = open.find({rank, reply.id});
                require(asked != open.end());
                open.erase(asked);
                (void)frame(reply);
              },
              [](std::size_t rank) { return "rank " + std::to_string(rank); }};

  void ask(Request request) {
    const std::size_t rank = request.id % 3;
    request.id = ++last;
    open[{rank, request.id}] = 1;
    store.handle(rank, std::move(request), now);
    store.expire(now += std::chrono::milliseconds(1));
  }
  ~Chief() {
    store.expire(Clock::time_point::max());
    require(open.empty());
    require(!store.next_deadline());
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view stream(reinterpret_cast<const char*>(data), size);
  Chief chief;
  Frame found;
  while (next_frame(stream, max_frame_bytes, found) == Framing::complete) {
    require(found.size <= stream.size() && found.size >= frame_header);
    round_trip<Hello>(found);
    round_trip<Refuse>(found);
    round_trip<MissingRanks>(found);
    round_trip<Peers>(found);
    round_trip<Start>(found);
    round_trip<Heartbeat>(found);
    round_trip<Request>(found);
    round_trip<Reply>(found);
    round_trip<Accuse>(found);
    round_trip<FailureReport>(found);
    round_trip<LostPeer>(found);
    round_trip<Leave>(found);
    round_trip<AllLeft>(found);
    round_trip<RetryLater>(found);
    if (found.type == FrameType::agreement)
      if (const auto letter = parse_letter(found.body))
        require(frame(*letter).substr(frame_header) == found.body);
    if (found.type == FrameType::request)
      if (auto request = parse<Request>(found.body)) chief.ask(std::move(*request));
    stream.remove_prefix(found.size);
  }
  return 0;
}
