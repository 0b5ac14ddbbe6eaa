#include "lockstep/cluster/rendezvous/store.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/signature.hpp"

using namespace lockstep::detail;
using namespace std::chrono_literals;
using Status = Reply::Code;

namespace {

/// A store of three ranks, and its replies.
struct Fixture {
  std::map<std::pair<std::size_t, std::uint64_t>, Reply> replies;
  int answers = 0;
  Clock::time_point now{};
  Store store{3,
              [this](std::size_t rank, Reply reply) {
                ++answers;
                const auto id = reply.id;
                replies[{rank, id}] = std::move(reply);
              },
              [](std::size_t rank) { return "rank " + std::to_string(rank); }};
  std::uint64_t last = 0;

  std::uint64_t ask(std::size_t rank, Operation operation, const std::string& name,
                    std::string value = {}, std::uint64_t number = 0, milliseconds deadline = 100ms,
                    std::vector<lockstep::SignatureField> fields = {}) {
    store.handle(rank, {++last, operation, name, std::move(value), number, deadline, fields}, now);
    return last;
  }
  bool answered(std::size_t rank, std::uint64_t id) const { return replies.count({rank, id}) != 0; }
  const Reply& reply(std::size_t rank, std::uint64_t id) { return replies.at({rank, id}); }
};

}  // namespace

TEST_CASE("get waits for set, and all waiting ranks get the value") {
  Fixture f;
  const auto a = f.ask(1, Operation::get, "key"), b = f.ask(2, Operation::get, "key");
  const auto other = f.ask(2, Operation::get, "other");
  CHECK(f.answers == 0);
  f.ask(0, Operation::set, "key", "value");
  CHECK(f.reply(1, a).value == "value");
  CHECK(f.reply(2, b).value == "value");
  CHECK_FALSE(f.answered(2, other));
  f.ask(0, Operation::set, "key", "later");
  CHECK(f.reply(1, f.ask(1, Operation::get, "key")).value == "later");
}

TEST_CASE("a request gets one reply, at its deadline at the latest") {
  Fixture f;
  const auto early = f.ask(1, Operation::get, "key", {}, 0, 100ms);
  const auto later = f.ask(1, Operation::get, "key", {}, 0, 300ms);
  CHECK(f.store.next_deadline() == f.now + 100ms);
  f.store.expire(f.now + 99ms);
  CHECK(f.answers == 0);
  f.store.expire(f.now + 100ms);
  CHECK(f.reply(1, early).status == Status::timeout);
  CHECK(f.store.next_deadline() == f.now + 300ms);
  f.ask(0, Operation::set, "key", "value");
  CHECK(f.reply(1, later).status == Status::ok);
  CHECK(f.answers == 3);
  CHECK_FALSE(f.store.next_deadline());
}

TEST_CASE("counters start at 0 or continue from a value that was set") {
  Fixture f;
  CHECK(f.reply(1, f.ask(1, Operation::add, "n", {}, 3)).number == 3);
  CHECK(f.reply(2, f.ask(2, Operation::add, "n", {}, 4)).number == 7);
  CHECK(f.reply(0, f.ask(0, Operation::get, "n")).value == "7");
  f.ask(0, Operation::set, "n", "40");
  CHECK(f.reply(1, f.ask(1, Operation::add, "n", {}, 2)).number == 42);
  f.ask(0, Operation::set, "n", "-1");
  CHECK(f.reply(1, f.ask(1, Operation::add, "n", {}, 2)).status == Status::error);
}

TEST_CASE("the store refuses values that do not fit, and keeps the others") {
  Fixture f;
  const std::string big(60'000, 'x');
  std::size_t kept = 0;
  while (f.reply(0, f.ask(0, Operation::set, std::to_string(kept), big)).status == Status::ok)
    ++kept;
  CHECK(kept > 1000);
  CHECK(kept * big.size() <= Store::max_bytes);
  CHECK(f.reply(1, f.ask(1, Operation::get, "0")).value == big);
  // Replacing a value frees its space.
  CHECK(f.reply(0, f.ask(0, Operation::set, "0", "small")).status == Status::ok);
  CHECK(f.reply(0, f.ask(0, Operation::set, "new", std::string(1000, 'x'))).status == Status::ok);
}

TEST_CASE("a barrier ends when all ranks have entered, but one that timed out has not") {
  Fixture f;
  const auto a = f.ask(0, Operation::barrier, "b", {}, 0, 100ms);
  const auto b = f.ask(1, Operation::barrier, "b", {}, 0, 500ms);
  CHECK(f.store.awaited(2));
  CHECK_FALSE(f.store.awaited(1));
  CHECK(f.reply(1, f.ask(1, Operation::barrier, "b")).status == Status::error);
  f.store.expire(f.now + 100ms);
  CHECK(f.reply(0, a).status == Status::timeout);
  CHECK(f.reply(0, a).value ==
        "barrier \"b\": not all ranks arrived before the deadline; missing: rank 2");
  const auto c = f.ask(2, Operation::barrier, "b", {}, 0, 500ms);
  CHECK_FALSE(f.answered(1, b));
  CHECK(f.store.awaited(0));
  const auto again = f.ask(0, Operation::barrier, "b", {}, 0, 500ms);
  for (const auto& [rank, id] : {std::pair{0u, again}, {1u, b}, {2u, c}})
    CHECK(f.reply(rank, id).status == Status::ok);
  CHECK_FALSE(f.store.next_deadline());
}

TEST_CASE("a gather returns the values of all ranks by rank, and leaves nothing in the store") {
  Fixture f;
  const std::string big(20'000, 'x');
  for (int round = 0; round < 1200; ++round) {  // together more than a store holds
    const auto c = f.ask(2, Operation::gather, "g", big + "2"),
               a = f.ask(0, Operation::gather, "g");
    REQUIRE_FALSE(f.answered(0, a));
    const auto b = f.ask(1, Operation::gather, "g", "1" + big);
    for (const auto& [rank, id] : {std::pair{0u, a}, {1u, b}, {2u, c}}) {
      REQUIRE(f.reply(rank, id).status == Status::ok);
      REQUIRE(f.reply(rank, id).value == "1" + big + big + "2");
    }
    f.replies.clear();
  }
  CHECK(f.reply(0, f.ask(0, Operation::set, "x", big)).status == Status::ok);
}

TEST_CASE("a gather of different fields, or of more than a reply holds, fails for all ranks") {
  for (const bool is_long : {false, true}) {
    Fixture f;
    const auto come = [&](std::size_t rank) {
      return f.ask(rank, Operation::gather, "g", std::string(is_long ? 30'000 : 1, 'x'), 0, 100ms,
                   {{"call", !is_long && rank == 2 ? "barrier" : "all_reduce"}});
    };
    const auto a = come(0), b = come(1), c = come(2);
    for (const auto& [rank, id] : {std::pair{0u, a}, {1u, b}, {2u, c}}) {
      CHECK(f.reply(rank, id).status == Status::error);
      CHECK(f.reply(rank, id).value.find(
                is_long ? "gather \"g\": the values of all ranks have more than 64512 bytes"
                        : "g: rank 0 and rank 2 differ in \"call\"") == 0);
    }
  }
}

TEST_CASE("a timeout names a rank that never came, not one that timed out before") {
  Fixture f;
  const auto a = f.ask(0, Operation::gather, "g", "old", 0, 100ms);
  const auto c = f.ask(2, Operation::gather, "g", "2", 0, 300ms);
  f.store.expire(f.now + 100ms);
  f.store.expire(f.now + 300ms);
  for (const auto& [rank, id] : {std::pair{0u, a}, {2u, c}}) {
    CHECK(f.reply(rank, id).status == Status::timeout);
    CHECK(f.reply(rank, id).number == 1 + 1);
    CHECK(f.reply(rank, id).value.find("missing: rank 1") != std::string::npos);
  }
  // The value of a rank that has timed out is forgotten, and it is missing if no other rank is.
  const auto again = f.ask(0, Operation::gather, "g", "0", 0, 100ms);
  f.ask(1, Operation::gather, "g", "1", 0, 500ms);
  f.store.expire(f.now + 100ms);
  CHECK(f.reply(0, again).number == 1 + 1 + 1);
  const auto last = f.ask(2, Operation::gather, "g", "2", 0, 200ms);
  f.store.expire(f.now + 200ms);
  CHECK(f.reply(2, last).number == 1 + 0);
  const auto all = f.ask(2, Operation::gather, "g", "two", 0, 500ms);
  f.ask(0, Operation::gather, "g", "zero", 0, 500ms);
  CHECK(f.reply(2, all).value == "zero1two");
}

TEST_CASE("ranks that differ get one message at once, late ranks too") {
  for (const std::size_t odd : {0u, 1u, 2u}) {
    CAPTURE(odd);
    Fixture f;
    const auto come = [&](std::size_t rank) {
      return f.ask(rank, Operation::agree, "fit", {}, 0, 100ms,
                   {{"steps", "5"}, {"seed", rank == odd ? "2\n" : "1"}});
    };
    const auto c = come(2), b = come(1);
    const bool known = odd != 0;
    CHECK(f.answered(2, c) == known);
    CHECK(f.answered(1, b) == known);
    const auto a = come(0);
    const std::string message = f.reply(0, a).value;
    CAPTURE(message);
    CHECK(f.reply(0, a).status == Status::error);
    CHECK(f.reply(1, b).value == message);
    CHECK(f.reply(2, c).value == message);
    const char* expected =
        odd == 0   ? "fit: rank 0 and rank 2 differ in \"seed\": \"2\\x0a\" and \"1\""
        : odd == 1 ? "fit: rank 1 and rank 2 differ in \"seed\": \"2\\x0a\" and \"1\""
                   : "fit: rank 1 and rank 2 differ in \"seed\": \"1\" and \"2\\x0a\"";
    CHECK(message.find(expected) == 0);
    // The next barrier starts afresh.
    const auto first = f.ask(0, Operation::agree, "fit");
    CHECK_FALSE(f.answered(0, first));
  }
}

TEST_CASE("a missing field is a difference, and long values are shown where they differ") {
  using Fields = std::vector<lockstep::SignatureField>;
  const Fields two{{"a", "1"}, {"b", "2"}}, one{{"a", "1"}};
  CHECK(difference("fit", "x", two, "y", one)->find("differ in \"b\": \"2\" and nothing") !=
        std::string::npos);
  CHECK(difference("fit", "x", one, "y", two)->find("differ in \"b\": nothing and \"2\"") !=
        std::string::npos);
  CHECK_FALSE(difference("fit", "x", two, "y", two));
  const std::string same(500, 's');
  const auto message = difference("fit", "x", {{"layers", same + "Dense(10)" + same}}, "y",
                                  {{"layers", same + "Dense(11)" + same}});
  REQUIRE(message);
  CHECK(message->find("Dense(10)") != std::string::npos);
  CHECK(message->find("Dense(11)") != std::string::npos);
  CHECK(message->size() < 400);
}

TEST_CASE("a long list is shown from the item that differs, or by that item's name") {
  const auto message = [](const std::string& a, const std::string& b) {
    const auto sentence = difference("model", "x", {{"layers", a}}, "y", {{"layers", b}});
    REQUIRE(sentence);
    CHECK(sentence->size() < 400);
    const std::size_t from = sentence->find("\"layers\": ") + 10;
    return sentence->substr(from, sentence->find("; start all") - from);
  };
  std::string many;
  for (int i = 0; i < 400; ++i) many += "dense_" + std::to_string(i) + " (units 64) to (64); ";
  CHECK(message(many + "re_lu to (64); dense to (3)", many + "tanh to (64); dense to (3)") ==
        "...\"re_lu to (64); dense to (3)\" and ...\"tanh to (64); dense to (3)\"");
  CHECK(message(many + "dropout (rate 0.2) to (64)", many + "dropout (rate 0.5) to (64)") ==
        "...\"dropout (rate 0.2) to (64)\" and ...\"dropout (rate 0.5) to (64)\"");
  // One has an additional layer.
  CHECK(message(many + "re_lu to (64)", many + "re_lu to (64); softmax to (64)") ==
        "...\"re_lu to (64)\" and ...\"re_lu to (64); softmax to (64)\"");
  // Far after the name of the item.
  const std::string conv = "conv2d_7 (filters 32, kernel (3, 3), strides (1, 1), dilation (1, 1), ";
  CHECK(message(many + conv + "padding same)", many + conv + "padding valid)") ==
        "...\"conv2d_7 ... strides (1, 1), dilation (1, 1), padding same)\" and ...\"conv2d_7 ... "
        "strides (1, 1), dilation (1, 1), padding valid)\"");
  CHECK(message(conv + "padding same)", conv + "padding valid)") ==
        "\"conv2d_7 ... strides (1, 1), dilation (1, 1), padding same)\" and \"conv2d_7 ... "
        "strides (1, 1), dilation (1, 1), padding valid)\"");
}

TEST_CASE("the shown parts of two long values always differ") {
  for (const char filler : {'s', ' ', ';', ',', '\n', '\xff'})
    for (const std::size_t before :
         {0u, 5u, 9u, 10u, 11u, 40u, 47u, 48u, 49u, 73u, 200u, 20'000u}) {
      CAPTURE(filler, before);
      const std::string same(before, filler);
      for (const auto& [a, b] : {std::pair{"a", "b"}, {"", "b"}, {"a", ""}}) {
        const std::size_t at = before;
        CHECK(quote_from(same + a + same, at) != quote_from(same + b + same, at));
      }
      CHECK(quote_from(same, before) != quote_from(same + "b", before));
    }
}

TEST_CASE("chunks hold all fields in order, fit in a frame, and differ where the fields do") {
  using Fields = std::vector<lockstep::SignatureField>;
  const auto together = [](const std::vector<Fields>& all) {
    Fields result;
    for (const Fields& portion : all)
      for (const auto& [name, value] : portion) {
        if (name == "next field") continue;
        if (!result.empty() && result.back().first == name)
          result.back().second += value;
        else
          result.emplace_back(name, value);
      }
    return result;
  };
  CHECK(split_fields({}).size() == 1);
  CHECK(split_fields({{"a", ""}, {"b", "2"}}) == std::vector<Fields>{{{"a", ""}, {"b", "2"}}});
  for (const std::size_t size : {0u, 1u, 85u, 86u, 87u, 91u, 92u, 93u, 184u, 1000u}) {
    CAPTURE(size);
    const Fields fields{{"first", "1"}, {"layers", std::string(size, 'x')}, {"last", "3"}};
    const auto parts = split_fields(fields, 100);
    CHECK(together(parts) == fields);
    Fields longer = fields;
    longer[1].second += 'x';
    const auto others = split_fields(longer, 100);
    bool differs = false;
    for (std::size_t i = 0; i < parts.size() && i < others.size(); ++i)
      differs = differs || difference("model", "x", parts[i], "y", others[i]);
    CHECK(differs);
  }
  Request request;
  request.operation = Operation::agree;
  request.name = std::string(max_name_bytes, 'n');
  for (auto& portion :
       split_fields({{std::string(max_name_bytes, 'a'), std::string(300'000, 'x')}})) {
    request.fields = std::move(portion);
    CHECK(frame(request).size() <= max_frame_bytes);
  }
  CHECK_THROWS_AS(split_fields({{std::string(max_name_bytes + 1, 'a'), ""}}), lockstep::UsageError);
}
