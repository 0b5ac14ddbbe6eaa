#include "lockstep/cluster/elastic/elastic_messages.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep::detail;

namespace {

Decision decision(std::size_t workers) {
  Decision result{1, 2, 3, 4, {}};
  for (std::uint32_t i = 0; i < workers; ++i)
    result.seats.push_back({{i, ~std::uint64_t{i}}, {static_cast<std::uint8_t>(i)}, i});
  return result;
}

std::vector<Letter> letters() {
  const GenerationId id{7, 8};
  const Vote vote{{3, 1}, {2, 0}, encode(decision(3))};
  std::vector<Letter> result;
  for (ElasticMessage message : std::initializer_list<ElasticMessage>{
           Notice{Standing::ending, true, id, {1, 2}, {5, 6}}, Form{9},
           MissingMembers{9, {1, 70'000}}, Prepare{id, {1, 2}}, Promise{id, {1, 2}, vote},
           Accept{id, {1, 2}, encode(decision(2))}, Accepted{id, {1, 2}, {3, 0}},
           Decided{decision(4)}, Refused{"other settings", true}})
    result.push_back({{11, 12}, 13, message});
  return result;
}

std::string body(const Letter& letter) { return frame(letter).substr(frame_header); }

}  // namespace

TEST_CASE("letters of the elastic agreement arrive as they were sent") {
  for (const Letter& letter : letters()) {
    CAPTURE(letter.message.index());
    const std::string bytes = body(letter);
    CHECK(parse_letter(bytes) == letter);
    // Neither a part of it nor more than it is a letter.
    for (std::size_t n = 0; n < bytes.size(); ++n)
      if (parse_letter(std::string_view(bytes).substr(0, n))) FAIL("a letter of " << n << " bytes");
    CHECK_FALSE(parse_letter(bytes + '\0'));
  }
}

TEST_CASE("letters with values out of range are refused") {
  const auto with = [](const Letter& letter, std::size_t at, char value) {
    std::string bytes = body(letter);
    bytes.at(at) = value;
    return parse_letter(bytes);
  };
  constexpr std::size_t kind = 20, first = 21;
  const auto all = letters();
  CHECK_FALSE(with(all[0], kind, 8));
  CHECK_FALSE(with(all[0], kind, -1));
  CHECK_FALSE(with(all[0], first, 4));        // a standing
  CHECK_FALSE(with(all[0], first + 1, 2));    // a flag
  CHECK_FALSE(with(all[0], first + 34, 65));  // more than it has
  CHECK_FALSE(with(all[1], first, 0));        // a run
  Notice notice;
  notice.rejected.resize(Notice::max_rejected + 1);
  CHECK_FALSE(parse_letter(body({{}, 1, notice})));
}

TEST_CASE("the largest membership fits into a frame, and a wrong one is refused") {
  const Decision largest = decision(max_elastic_workers);
  CHECK(decode(encode(largest)) == largest);
  CHECK(parse_letter(body({{}, 1, Accept{{}, {}, encode(largest)}})).has_value());
  CHECK_FALSE(decode(encode(decision(max_elastic_workers + 1))));
  CHECK_FALSE(decode(encode(decision(0))));
  CHECK_FALSE(decode(""));
  const auto refused = [](auto change) {
    Decision wrong = decision(3);
    change(wrong);
    return !decode(encode(wrong));
  };
  CHECK(refused([](Decision& d) { d.run = 0; }));
  CHECK(refused([](Decision& d) { d.seats[1].who.index = 0; }));
  CHECK(refused([](Decision& d) { d.seats[1].who.index = max_elastic_workers; }));
  CHECK(refused([](Decision& d) { d.seats[1].former = max_elastic_workers; }));
  CHECK(decision(3).rank_of({2, ~std::uint64_t{2}}) == 2u);
  CHECK_FALSE(decision(3).rank_of({2, 2}));
}
