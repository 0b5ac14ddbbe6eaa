#include "lockstep/cluster/rendezvous/messages.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <random>
#include <string>

#include "lockstep/cluster/network/frames.hpp"

using namespace lockstep::detail;
using lockstep::Phase;

namespace {

/// Parses `body` as each type of message and counts the successes.
int parse_all(std::string_view body) {
  return int{parse<Hello>(body).has_value()} + int{parse<Refuse>(body).has_value()} +
         int{parse<MissingRanks>(body).has_value()} + int{parse<Peers>(body).has_value()} +
         int{parse<Start>(body).has_value()} + int{parse<Heartbeat>(body).has_value()} +
         int{parse<Request>(body).has_value()} + int{parse<Reply>(body).has_value()} +
         int{parse<Accuse>(body).has_value()} + int{parse<FailureReport>(body).has_value()} +
         int{parse<LostPeer>(body).has_value()} + int{parse<Leave>(body).has_value()} +
         int{parse<RetryLater>(body).has_value()};
}

std::string body_of(const std::string& bytes) {
  Frame found;
  REQUIRE(next_frame(bytes, max_frame_bytes, found) == Framing::complete);
  REQUIRE(found.size == bytes.size());
  return std::string(found.body);
}

}  // namespace

TEST_CASE("a frame begins with its length and type, little-endian") {
  CHECK(frame(Accuse{0x0102, "x", 7}) ==
        std::string("\x0F\0\0\0\x09\0\x02\x01\0\0\x01\0\0\0x\x07\0\0\0", 19));
  CHECK(frame(AllLeft{}) == std::string("\x02\0\0\0\x0D\0", 6));
}

TEST_CASE("messages survive a round trip") {
  const Request request{7,
                        Operation::agree,
                        "name",
                        std::string("\0\xFF", 2),
                        1u << 31,
                        std::chrono::milliseconds(1234),
                        {{"a", "b"}, {"", ""}}};
  const auto read = parse<Request>(body_of(frame(request)));
  REQUIRE(read);
  CHECK(read->id == 7);
  CHECK(read->operation == Operation::agree);
  CHECK(read->name == request.name);
  CHECK(read->value == request.value);
  CHECK(read->number == request.number);
  CHECK(read->deadline == request.deadline);
  CHECK(read->fields == request.fields);

  const LostPeer loss{3, "10.0.0.1:5", "was silent", 41};
  const auto received = parse<Leave>(body_of(frame(Leave{loss})));
  REQUIRE(received);
  REQUIRE(received->cause);
  CHECK(received->cause->rank == 3);
  CHECK(received->cause->address == loss.address);
  CHECK(received->cause->how == loss.how);
  CHECK(received->cause->last_step == 41);
  CHECK_FALSE(parse<Leave>(body_of(frame(Leave{})))->cause);

  const Hello plain{"job", false, 1, {{"a", "b"}}, ""}, placed{"job", false, 1, {}, "10.0.0.7"};
  CHECK(parse<Hello>(body_of(frame(plain)))->data_address.empty());
  CHECK(parse<Hello>(body_of(frame(placed)))->data_address == "10.0.0.7");
  CHECK(parse<Start>(body_of(frame(Start{1, {}, {}, "fd00::7"})))->data_address == "fd00::7");
  const auto later =
      parse<RetryLater>(body_of(frame(RetryLater{"not now", RetryLater::AddressFamily::ipv6})));
  REQUIRE(later);
  CHECK(later->reason == "not now");
  CHECK(later->family == RetryLater::AddressFamily::ipv6);

  CHECK(body_of(frame(Refuse{"x"})) == std::string("\x01\0\0\0x", 5));
  for (const auto reason : {Refuse::Reason::definite, Refuse::Reason::other_secret}) {
    const auto refusal = parse<Refuse>(body_of(frame(Refuse{"no", reason})));
    REQUIRE(refusal);
    CHECK(refusal->sentence == "no");
    CHECK(refusal->reason == reason);
  }

  const auto beat = parse<Heartbeat>(body_of(frame(Heartbeat{{1ull << 40, Phase::reduce, true},
                                                             std::chrono::milliseconds(99),
                                                             {7, 5},
                                                             {1, 1ull << 50, 3, 4}})));
  REQUIRE(beat);
  CHECK(beat->progress == lockstep::WorkerProgress{1ull << 40, Phase::reduce, true});
  CHECK(beat->stalled_for == std::chrono::milliseconds(99));
  CHECK(beat->exchange == lockstep::ExchangeProgress{7, 5});
  CHECK(beat->stamps.sent == 1);
  CHECK(beat->stamps.echo == 1ull << 50);
  CHECK(beat->stamps.held == 3);
  CHECK(beat->stamps.longest == 4);
  CHECK_FALSE(parse<Heartbeat>(body_of(frame(Heartbeat{})))->exchange.waits_for);
}

TEST_CASE("a message that is truncated or has extra bytes is refused") {
  const std::string bodies[] = {
      body_of(frame(Hello{"job", true, 1, {{"a", "b"}}})),
      body_of(frame(Request{1, Operation::set, "n", "v", 0, {}, {{"a", "b"}}})),
      body_of(frame(Peers{0, {"a", "b"}})), body_of(frame(LostPeer{1, "a", "h", 3}))};
  for (std::size_t which = 0; which < 4; ++which) {
    const auto read = [which](std::string_view body) {
      return which == 0   ? parse<Hello>(body).has_value()
             : which == 1 ? parse<Request>(body).has_value()
             : which == 2 ? parse<Peers>(body).has_value()
                          : parse<LostPeer>(body).has_value();
    };
    const std::string& body = bodies[which];
    CHECK(read(body));
    for (std::size_t n = 0; n < body.size(); ++n) CHECK_FALSE(read(body.substr(0, n)));
    CHECK_FALSE(read(body + '\0'));
  }
}

TEST_CASE("enumerators out of range are refused") {
  auto beat = body_of(frame(Heartbeat{}));
  beat[8] = static_cast<char>(static_cast<int>(lockstep::last_phase) + 1);
  CHECK_FALSE(parse<Heartbeat>(beat));
  auto request = body_of(frame(Request{}));
  request[8] = static_cast<char>(static_cast<int>(Operation::gather) + 1);
  CHECK_FALSE(parse<Request>(request));
  auto hello = body_of(frame(Hello{}));
  hello[4] = 2;  // a flag
  CHECK_FALSE(parse<Hello>(hello));
  // A count that exceeds the bytes does not allocate.
  CHECK_FALSE(parse<Peers>(std::string("\0\0\0\0\xFF\xFF\xFF\xFF", 8)));
}

TEST_CASE("arbitrary bytes are parsed without harm") {
  std::mt19937 random{42};
  int found = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes)
      c = random() % 3 ? static_cast<char>(random() % 4) : static_cast<char>(random());
    found += parse_all(bytes);
    Frame ignored;
    if (next_frame(bytes, max_frame_bytes, ignored) == Framing::complete) {
      CHECK(ignored.size <= bytes.size());
      CHECK(ignored.body.size() + frame_header == ignored.size);
    }
  }
  CHECK(found > 0);
}

TEST_CASE("a frame is found as soon as it is complete, an invalid one as soon as possible") {
  const std::string whole = frame(Accuse{1, "how"});
  Frame found;
  for (std::size_t n = 0; n < whole.size(); ++n)
    CHECK(next_frame(whole.substr(0, n), max_frame_bytes, found) == Framing::incomplete);
  CHECK(next_frame(whole + "more", max_frame_bytes, found) == Framing::complete);
  CHECK(found.size == whole.size());
  CHECK(next_frame(std::string("\x01\0\0\0", 4), max_frame_bytes, found) == Framing::wrong);
  CHECK(next_frame(std::string("\xFD\xFF\0\0", 4), max_frame_bytes, found) == Framing::wrong);
  CHECK(next_frame(std::string("\xFC\xFF\0\0", 4), max_frame_bytes, found) == Framing::incomplete);
  CHECK(next_frame(std::string("\x02\0\0\0\0\0", 6), max_frame_bytes, found) == Framing::wrong);
  CHECK(next_frame(std::string("\x02\0\0\0\x10\0", 6), max_frame_bytes, found) == Framing::wrong);
  CHECK_THROWS_AS(frame(Refuse{std::string(max_frame_bytes, 'x')}), lockstep::UsageError);
}
